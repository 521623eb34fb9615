//! The benches: rows with their bars (docs: performance), each the median of repetitions.

mod harness;
pub mod sip;
pub mod testrun;

use serde::Serialize;

/// What a bench found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Its name.
    pub bench: &'static str,
    /// Where it ran: processors and kernel.
    pub machine: String,
    /// Its figures.
    pub rows: Vec<Row>,
}

impl Report {
    /// The report of `rows` found on this machine.
    #[must_use]
    pub fn new(bench: &'static str, rows: Vec<Row>) -> Self {
        let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let kernel = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        Self {
            bench,
            machine: format!("{processors} processors, Linux {kernel}"),
            rows,
        }
    }
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Its name: a contract.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many repetitions.
    pub n: usize,
    /// What it must keep; `None`: shown only.
    pub bar: Option<f64>,
    /// Which side of the bar is good: "lower" or "higher".
    pub better: &'static str,
    /// Whether it keeps it.
    pub ok: bool,
}

impl Row {
    /// A row of `samples`, of which there is at least one.
    #[must_use]
    pub fn lower(
        name: &'static str,
        unit: &'static str,
        samples: Vec<f64>,
        bar: Option<f64>,
    ) -> Self {
        let row = Self::of(name, unit, samples, bar);
        let ok = bar.is_none_or(|bar| row.median <= bar);
        Self { ok, ..row }
    }

    /// The same where more is better.
    #[must_use]
    pub fn higher(
        name: &'static str,
        unit: &'static str,
        samples: Vec<f64>,
        bar: Option<f64>,
    ) -> Self {
        let row = Self::of(name, unit, samples, bar);
        let ok = bar.is_none_or(|bar| row.median >= bar);
        Self {
            ok,
            better: "higher",
            ..row
        }
    }

    fn of(name: &'static str, unit: &'static str, mut samples: Vec<f64>, bar: Option<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |index: usize| samples.get(index).copied().unwrap_or(f64::NAN);
        let median = at(samples.len() / 2);
        Self {
            name,
            unit,
            median,
            min: at(0),
            max: at(samples.len().saturating_sub(1)),
            n: samples.len(),
            bar,
            better: "lower",
            ok: false,
        }
    }
}
