//! The load: phones in a closed loop, each with one request or call under way.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use keepline_engine::sip::{Message, Name};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::lab::Branch;
use crate::lab::branch::PHONES;
use crate::lab::kamailio::DOMAIN;

/// RFC 3261 section 17.1.1.1, without its doubling: a datagram that met a full queue goes again.
const T1: Duration = Duration::from_millis(500);
/// Silence for as long is a fault.
const SILENCE: Duration = Duration::from_secs(5);

/// A phone's socket, and the numbers it counts with.
struct Agent {
    socket: UdpSocket,
    at: SocketAddr,
    user: String,
    cseq: usize,
    /// What waits for an answer, and since when.
    asked: Option<(String, Instant)>,
}

/// What an agent does with an answer.
enum Step {
    /// Waits for another.
    Wait,
    /// Goes on.
    Say(Vec<String>),
    /// Has done one unit of work, with these last words.
    Done(Vec<String>),
}

impl Agent {
    fn all(branch: &Branch, count: u16, first: u16) -> Result<Vec<Self>> {
        let one = |number: u16| {
            let host = Branch::phone(u8::try_from(number % u16::from(PHONES))?);
            let socket = branch.phones.udp(&format!("{host}:0"))?;
            socket.set_nonblocking(true)?;
            let at = socket.local_addr()?;
            let user = (first + number).to_string();
            Ok(Self {
                socket,
                at,
                user,
                cseq: 0,
                asked: None,
            })
        };
        (0..count).map(one).collect()
    }

    fn say(&mut self, proxy: SocketAddr, text: String) -> Result<()> {
        self.socket.send_to(text.as_bytes(), proxy)?;
        self.asked = (!text.starts_with("ACK")).then(|| (text, Instant::now()));
        Ok(())
    }

    /// An answer to what was asked last. Answers to earlier requests were repeated, and count
    /// once.
    fn hear(&mut self) -> Result<Option<Message>> {
        let mut datagram = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut datagram) {
            let answer = Message::parse(datagram[..length].to_vec());
            let answer = answer.map_err(|refusal| anyhow::anyhow!("no answer: {refusal}"))?;
            let cseq = answer.cseq().map(|cseq| cseq.number as usize);
            if cseq == Some(self.cseq) && self.asked.is_some() {
                if answer.status() >= Some(200) {
                    self.asked = None;
                }
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    fn repeat(&mut self, proxy: SocketAddr) -> Result<()> {
        if let Some((text, since)) = &mut self.asked
            && since.elapsed() >= T1
        {
            self.socket.send_to(text.as_bytes(), proxy)?;
            *since = Instant::now();
        }
        Ok(())
    }

    fn head(&self, method: &str, uri: &str, to: &str, call_id: &str) -> String {
        let (user, at, cseq) = (&self.user, self.at, self.cseq);
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {at};branch=z9hG4bK{user}n{cseq}{method};rport\r\n\
             Max-Forwards: 70\r\nFrom: <sip:{user}@{DOMAIN}>;tag=f{user}\r\nTo: {to}\r\n\
             Call-ID: {call_id}\r\nCSeq: {cseq} {method}\r\n"
        )
    }

    fn register(&mut self, user: Option<usize>) -> String {
        self.cseq += 1;
        let user = user.map_or_else(|| self.user.clone(), |user| format!("n{user}"));
        let (at, to) = (self.at, format!("<sip:{user}@{DOMAIN}>"));
        let head = self.head(
            "REGISTER",
            &format!("sip:{DOMAIN}"),
            &to,
            &format!("bench-{user}"),
        );
        format!(
            "{head}Contact: <sip:{user}@{at}>\r\nExpires: 3600\r\nUser-Agent: bench\r\nContent-Length: 0\r\n\r\n"
        )
    }

    fn call_id(&self) -> String {
        format!("bench-{}-{}", self.user, self.cseq)
    }

    fn invite(&mut self) -> String {
        self.cseq += 2;
        let sdp = sdp(&self.at.ip().to_string(), 4000);
        let to = format!("<sip:far@{DOMAIN}>");
        let head = self.head("INVITE", &format!("sip:far@{DOMAIN}"), &to, &self.call_id());
        format!(
            "{head}Contact: <sip:{}@{}>\r\nUser-Agent: bench\r\nContent-Type: application/sdp\r\n\
             Content-Length: {}\r\n\r\n{sdp}",
            self.user,
            self.at,
            sdp.len()
        )
    }

    /// A request in the dialog that this answer made (RFC 3261 section 12.2.1.1).
    fn follow(&mut self, method: &str, answer: &Message) -> Result<String> {
        let call_id = answer
            .call_id()
            .context("no Call-ID")?
            .escape_ascii()
            .to_string();
        let contact = answer.contacts().next().context("no Contact")?;
        let uri = answer.slice(contact.uri).escape_ascii().to_string();
        let to = String::from_utf8_lossy(answer.slice(answer.header(Name::To).context("no To")?))
            .into_owned();
        if method != "ACK" {
            self.cseq += 1;
        }
        let mut out = self.head(method, &uri, &to, &call_id);
        let mut routes: Vec<_> = answer.values(Name::RecordRoute).collect();
        routes.reverse();
        for route in routes {
            out.push_str(&format!(
                "Route: {}\r\n",
                String::from_utf8_lossy(answer.slice(route))
            ));
        }
        Ok(out + "Content-Length: 0\r\n\r\n")
    }
}

/// A session description of a phone.
pub(super) fn sdp(host: &str, port: u16) -> String {
    format!(
        "v=0\r\no=- 1 1 IN IP4 {host}\r\ns=-\r\nc=IN IP4 {host}\r\nt=0 0\r\nm=audio {port} RTP/AVP 8 101\r\n\
         a=rtpmap:8 PCMA/8000\r\na=rtpmap:101 telephone-event/8000\r\na=sendrecv\r\n"
    )
}

/// Phones that register.
pub(super) struct Phones {
    agents: Vec<Agent>,
    proxy: SocketAddr,
    known: usize,
}

impl Phones {
    pub(super) fn new(branch: &Branch, proxy: SocketAddr, count: u16) -> Result<Self> {
        let agents = Agent::all(branch, count, 3_000)?;
        Ok(Self {
            agents,
            proxy,
            known: 0,
        })
    }

    /// So many REGISTERs of the same few phones.
    pub(super) fn refresh(&mut self, count: usize) -> Result<()> {
        drive(
            &mut self.agents,
            self.proxy,
            count,
            |agent| agent.register(None),
            registered,
        )
    }

    /// So many REGISTERs of as many phones.
    pub(super) fn newcomers(&mut self, count: usize) -> Result<()> {
        let known = &mut self.known;
        let begin = |agent: &mut Agent| {
            *known += 1;
            agent.register(Some(*known))
        };
        drive(&mut self.agents, self.proxy, count, begin, registered)
    }
}

/// Phones that call.
pub(super) struct Callers {
    agents: Vec<Agent>,
    proxy: SocketAddr,
}

impl Callers {
    pub(super) fn new(branch: &Branch, proxy: SocketAddr, count: u16) -> Result<Self> {
        let agents = Agent::all(branch, count, 4_000)?;
        Ok(Self { agents, proxy })
    }

    /// So many calls, set up and ended at once: INVITE, 180, 200, ACK, BYE, 200.
    pub(super) fn calls(&mut self, count: usize) -> Result<()> {
        drive(
            &mut self.agents,
            self.proxy,
            count,
            Agent::invite,
            |agent, answer| {
                let (code, method) = code_and_method(answer);
                match (code, method.as_str()) {
                    (..200, _) => Ok(Step::Wait),
                    (200, "INVITE") => Ok(Step::Say(vec![
                        agent.follow("ACK", answer)?,
                        agent.follow("BYE", answer)?,
                    ])),
                    (200, "BYE") => Ok(Step::Done(Vec::new())),
                    _ => bail!("{code} to {method}"),
                }
            },
        )
    }

    /// So many calls that stand.
    pub(super) fn stand(&mut self, count: usize) -> Result<()> {
        drive(
            &mut self.agents,
            self.proxy,
            count,
            Agent::invite,
            |agent, answer| match code_and_method(answer) {
                (..200, _) => Ok(Step::Wait),
                (200, _) => Ok(Step::Done(vec![agent.follow("ACK", answer)?])),
                (code, method) => bail!("{code} to {method}"),
            },
        )
    }
}

fn registered(_: &mut Agent, answer: &Message) -> Result<Step> {
    match code_and_method(answer) {
        (..200, _) => Ok(Step::Wait),
        (200, _) => Ok(Step::Done(Vec::new())),
        (code, method) => bail!("{code} to {method}"),
    }
}

fn code_and_method(answer: &Message) -> (u16, String) {
    let cseq = answer.header(Name::CSeq).map(|value| answer.slice(value));
    let cseq = String::from_utf8_lossy(cseq.unwrap_or_default());
    let method = cseq.split_whitespace().nth(1).unwrap_or_default();
    (answer.status().unwrap_or(0), method.to_owned())
}

/// Keeps every agent at work until `count` units are done.
fn drive(
    agents: &mut [Agent],
    proxy: SocketAddr,
    count: usize,
    mut begin: impl FnMut(&mut Agent) -> String,
    mut hear: impl FnMut(&mut Agent, &Message) -> Result<Step>,
) -> Result<()> {
    let (mut begun, mut done) = (0, 0);
    for agent in agents.iter_mut().take(count) {
        let text = begin(agent);
        agent.say(proxy, text)?;
        begun += 1;
    }
    let mut heard = Instant::now();
    while done < count {
        ensure!(
            heard.elapsed() < SILENCE,
            "{done} of {count} done, then silence"
        );
        wait_any(agents)?;
        for agent in agents.iter_mut() {
            while let Some(answer) = agent.hear()? {
                heard = Instant::now();
                let (said, over) = match hear(agent, &answer)? {
                    Step::Wait => (Vec::new(), false),
                    Step::Say(said) => (said, false),
                    Step::Done(said) => (said, true),
                };
                let next = (over && begun < count).then(|| begin(agent));
                begun += usize::from(next.is_some());
                done += usize::from(over);
                for text in said.into_iter().chain(next) {
                    agent.say(proxy, text)?;
                }
            }
            agent.repeat(proxy)?;
        }
    }
    Ok(())
}

/// Until a datagram is there, or something may have to be repeated.
fn wait_any(agents: &[Agent]) -> Result<()> {
    let mut ready: Vec<PollFd<'_>> = agents
        .iter()
        .map(|agent| PollFd::new(&agent.socket, PollFlags::IN))
        .collect();
    let second = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    poll(&mut ready, Some(&second))?;
    Ok(())
}
