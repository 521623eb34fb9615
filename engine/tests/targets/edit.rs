//! Patching: what a proxy does to a message leaves a message, and only what was meant differs.

use keepline_engine::sip::{Edit, Message, Name, Span, Why, digest};

/// More edits than any relayed message needs. Each walks over the message: a script as long as the
/// message would cost the square of it, and find nothing more.
const STEPS: usize = 64;

/// A script of edits, a zero byte, and a message to do them to.
pub(crate) fn sip_edit(data: &[u8]) {
    let Some(end) = data.iter().position(|byte| *byte == 0) else {
        return;
    };
    let Ok(msg) = Message::parse(data[end + 1..].to_vec()) else {
        return;
    };
    assert_eq!(Edit::new(&msg).finish(), msg.bytes(), "no edit, no change");
    let _ = digest::mark_stale(&msg);
    let mut script = Script {
        msg: &msg,
        edit: Edit::new(&msg),
        removed: Vec::new(),
        body: None,
    };
    for step in data[..end].chunks(2).take(STEPS) {
        // A script has no zero byte: its numbers count from one.
        script.step(step[0], step.get(1).map_or(0, |which| which - 1));
    }
    script.check();
}

/// Edits recorded so far, and what they must come to.
struct Script<'m> {
    msg: &'m Message,
    edit: Edit<'m>,
    removed: Vec<Span>,
    body: Option<Vec<u8>>,
}

impl Script<'_> {
    fn step(&mut self, what: u8, which: u8) {
        let msg = self.msg;
        let edit = &mut self.edit;
        match what % 12 {
            0 => edit.push_front(
                Name::Via,
                format!("SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK{which}"),
            ),
            1 => edit.push_front(Name::RecordRoute, "<sip:192.0.2.9;lr>"),
            2 => edit.push_back(Name::Supported, "path"),
            3 => edit.push_back_named("X-Keepline", [b'v', b'0' + which % 10]),
            4 => self.remove_contact(which),
            5 => edit.remove_all(Name::Route),
            6 => {
                let body = vec![which; usize::from(which) * 3];
                edit.set_body(&body);
                self.body = Some(body);
            }
            7 => {
                if let Some(value) = msg.header(Name::MaxForwards) {
                    edit.replace(value, which.to_string());
                }
            }
            8 => {
                if let Some(cseq) = msg.cseq() {
                    edit.replace(cseq.number_span, u32::from(which).to_string());
                }
            }
            9 => {
                if let Some(uri) = msg.uri() {
                    edit.replace(uri, format!("sip:{which}@[2001:db8::1]"));
                }
            }
            10 => {
                let other = |line: &&_| is_free(line);
                if let Some(line) = msg.lines().iter().filter(other).nth(usize::from(which)) {
                    edit.remove_line(line);
                }
            }
            _ => {
                // Inside whatever else may have been done to that line.
                if let Some(line) = msg
                    .lines()
                    .get(usize::from(which))
                    .filter(|line| is_free(line))
                {
                    edit.replace(line.value, "x");
                }
            }
        }
    }

    fn remove_contact(&mut self, which: u8) {
        if let Some(value) = self.msg.values(Name::Contact).nth(usize::from(which)) {
            self.edit.remove_value(Name::Contact, value);
            if !self.removed.contains(&value) {
                self.removed.push(value);
            }
        }
    }

    fn check(self) {
        let patched = match Message::parse(self.edit.finish()) {
            Ok(patched) => patched,
            Err(refusal) => {
                assert!(
                    matches!(refusal.why, Why::TooManyLines | Why::TooLong),
                    "{refusal}"
                );
                return;
            }
        };
        let values = |msg: &Message| -> Vec<Vec<u8>> {
            msg.values(Name::Contact)
                .map(|value| msg.slice(value).to_vec())
                .collect()
        };
        let kept: Vec<Vec<u8>> = self
            .msg
            .values(Name::Contact)
            .filter(|value| !self.removed.contains(value))
            .map(|value| self.msg.slice(value).to_vec())
            .collect();
        assert_eq!(values(&patched), kept);
        assert_eq!(
            patched.body(),
            self.body.as_deref().unwrap_or(self.msg.body())
        );
        assert_eq!(patched.call_id(), self.msg.call_id());
        assert_eq!(
            patched.header(Name::From).map(|span| patched.slice(span)),
            self.msg.header(Name::From).map(|span| self.msg.slice(span))
        );
    }
}

/// A line that nothing else here counts on.
fn is_free(line: &keepline_engine::sip::Line) -> bool {
    matches!(
        line.name,
        Name::Other | Name::Route | Name::UserAgent | Name::Allow | Name::Supported
    )
}
