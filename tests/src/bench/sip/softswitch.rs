//! The far end of the bench: it accepts everything at once, so that what is measured is the
//! program before it.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use keepline_engine::sip::{Message, Method, Name};

use crate::lab::Branch;
use crate::lab::branch::SOFTSWITCHES;

/// It answers on a thread of its own until it is dropped.
pub(super) struct Softswitch {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Softswitch {
    pub(super) fn start(branch: &Branch) -> Result<Self> {
        let socket = branch.softswitches[0].udp(&format!("{}:5060", SOFTSWITCHES[0]))?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let done = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&done);
        let thread = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                serve(&socket);
            }
        });
        Ok(Self {
            done,
            thread: Some(thread),
        })
    }
}

impl Drop for Softswitch {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(socket: &UdpSocket) {
    let mut datagram = [0; 8192];
    let Ok((length, from)) = socket.recv_from(&mut datagram) else {
        return;
    };
    let Ok(request) = Message::parse(datagram[..length].to_vec()) else {
        return;
    };
    for answer in answers(&request) {
        // Whoever asked asks again.
        let _ = socket.send_to(answer.as_bytes(), from);
    }
}

fn answers(request: &Message) -> Vec<String> {
    let ours = format!("<sip:far@{}:5060>", SOFTSWITCHES[0]);
    match request.method() {
        Some(Method::Ack) => Vec::new(),
        Some(Method::Invite) => {
            let ringing = answer(request, "180 Ringing", &format!("Contact: {ours}\r\n"), "");
            let sdp = super::load::sdp(SOFTSWITCHES[0], 6000);
            let head = format!("Contact: {ours}\r\nContent-Type: application/sdp\r\n");
            vec![ringing, answer(request, "200 OK", &head, &sdp)]
        }
        Some(Method::Register) => {
            let contact = request.contacts().next();
            let contact =
                contact.map(|contact| request.slice(contact.uri).escape_ascii().to_string());
            let contact = contact.unwrap_or_default();
            let head = format!("Contact: <{contact}>;expires=3600\r\n");
            vec![answer(request, "200 OK", &head, "")]
        }
        _ => vec![answer(request, "200 OK", "", "")],
    }
}

/// What identifies the transaction copied, a To tag where there is none.
fn answer(request: &Message, status: &str, head: &str, body: &str) -> String {
    let mut out = format!("SIP/2.0 {status}\r\n");
    for line in request.lines() {
        let copied = matches!(
            line.name,
            Name::Via | Name::RecordRoute | Name::From | Name::To | Name::CallId | Name::CSeq
        );
        if copied {
            out.push_str(String::from_utf8_lossy(request.slice(line.full)).trim_end());
            if line.name == Name::To && request.to_tag().is_none() {
                out.push_str(";tag=far");
            }
            out.push_str("\r\n");
        }
    }
    out + head + &format!("Content-Length: {}\r\n\r\n{body}", body.len())
}
