//! What the audience sees: a line when something happens, a table at the end.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

/// One step of the story and how it went.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Step {
    step: &'static str,
    ok: bool,
    /// The measured time that the step is about.
    ms: u64,
    detail: String,
}

/// What a step that held has to say.
pub(super) struct Held {
    /// The measured time that the step is about.
    pub(super) took: Duration,
    pub(super) detail: String,
}

/// The story so far.
pub(super) struct Timeline {
    start: Instant,
    colour: bool,
    steps: Vec<Step>,
}

impl Timeline {
    pub(super) fn start() -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some();
        let colour = !plain && std::io::stdout().is_terminal();
        Self {
            start: Instant::now(),
            colour,
            steps: Vec::new(),
        }
    }

    /// Something happened.
    pub(super) fn say(&self, what: impl AsRef<str>) {
        println!(
            "{:8.3} s  {}",
            self.start.elapsed().as_secs_f64(),
            what.as_ref()
        );
    }

    /// Plays one step. The story goes on when it fails, so that the table shows all.
    pub(super) fn step(
        &mut self,
        step: &'static str,
        title: &str,
        play: impl FnOnce(&Self) -> Result<Held>,
    ) {
        self.say(self.paint("1", title));
        let step = match play(self) {
            Ok(Held { took, detail }) => {
                let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                Step {
                    step,
                    ok: true,
                    ms,
                    detail,
                }
            }
            Err(error) => Step {
                step,
                ok: false,
                ms: 0,
                detail: format!("{error:#}"),
            },
        };
        self.say(format!(
            "{} {}: {}",
            self.mark(&step),
            step.step,
            step.detail
        ));
        self.steps.push(step);
    }

    /// The table at the end.
    pub(super) fn table(&self) {
        let ids = self.steps.iter().map(|step| step.step.len());
        let width = ids.max().unwrap_or(0);
        println!();
        for step in &self.steps {
            let detail = step.detail.lines().next().unwrap_or_default();
            println!(
                "{} {:width$} {:>7} ms  {detail}",
                self.mark(step),
                step.step,
                step.ms
            );
        }
        let held = self.steps.iter().filter(|step| step.ok).count();
        let elapsed = self.start.elapsed().as_secs();
        println!("{held} of {} steps held, {elapsed} s", self.steps.len());
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub(super) fn all_held(&self) -> bool {
        !self.steps.is_empty() && self.steps.iter().all(|step| step.ok)
    }

    fn mark(&self, step: &Step) -> String {
        if step.ok {
            self.paint("32", "ok    ")
        } else {
            self.paint("31", "FAILED")
        }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
