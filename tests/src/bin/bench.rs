//! `cargo xtask bench NAME --json FILE`: runs a bench, shows its rows against their bars, and
//! exits 1 when one does not keep its bar.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, ValueEnum};
use keepline_tests::bench::{Report, Row, sip, testrun};

/// Measures, and compares with the bars.
#[derive(Parser)]
struct Args {
    /// Which bench; all of them when left out
    name: Option<Name>,
    /// Write the rows there
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Fail only when a size grew, whatever the times: for machines that do other things too
    #[arg(long)]
    sizes: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// The program under BPF_PROG_TEST_RUN
    Testrun,
    /// Signalling, against Kamailio
    Sip,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let names = args
        .name
        .map_or(vec![Name::Testrun, Name::Sip], |name| vec![name]);
    let reports = names
        .into_iter()
        .map(measured)
        .collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(file) = args.json {
        let text = match reports.as_slice() {
            [one] => serde_json::to_vec_pretty(one)?,
            all => serde_json::to_vec_pretty(all)?,
        };
        std::fs::write(file, text)?;
    }
    let kept = |row: &Row| row.ok || args.sizes && row.bar.is_some();
    let kept = reports.iter().flat_map(|report| &report.rows).all(kept);
    Ok(if kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn measured(name: Name) -> anyhow::Result<Report> {
    let report = match name {
        Name::Testrun => testrun::run()?,
        Name::Sip => sip::run()?,
    };
    println!("{}, {}", report.bench, report.machine);
    report.rows.iter().for_each(print_row);
    Ok(report)
}

fn print_row(row: &Row) {
    let bar = row
        .bar
        .map_or_else(|| "no bar".to_owned(), |bar| format!("bar {bar}"));
    let verdict = if row.ok { "ok" } else { "FAILED" };
    println!(
        "{:20} {:>10.1} {:12} min {:.1} max {:.1} n {} {bar} {verdict}",
        row.name, row.median, row.unit, row.min, row.max, row.n
    );
}
