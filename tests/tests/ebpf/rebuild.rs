//! Maps that must be made anew: pins of other shapes and versions, and starts that are killed in
//! between.

use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aya::maps::MapType;
use keepline::fastpath::{
    Stage,
    layout::{self, Shape},
    object::Sizes,
};
use keepline_common::ABI;
use keepline_tests::fixture::{
    plant::plant,
    site::{LIMIT, PIN, Site, carries_a_program},
};
use keepline_tests::lab::{Launch, gateway};

/// What the sender may be ahead of its pace after it was held up.
const SLACK: Duration = Duration::from_millis(100);

/// A start with another media range, under traffic: it says `why` it made the maps anew, carries
/// the one flow over, loses nothing, and leaves one generation.
fn rebuilt_under_traffic(site: &mut Site, media: RangeInclusive<u16>, why: &str) -> Result<()> {
    let (programs, maps) = site.start()?;
    let steer = site.steer(maps)?;
    drop((programs, steer));
    site.options.media = media;
    let mut said = None;
    let (sent, came) = site.under_traffic(|traffic| {
        traffic.pass(300)?;
        let (programs, maps) = site.start()?;
        said = programs.rebuilt().map(str::to_owned);
        // No steering yet: what forwards was carried over.
        drop((programs, maps));
        traffic.pass(300)?;
        Ok(())
    })?;
    let said = said.context("nothing was said")?;
    ensure!(
        said.contains(why) && said.contains("1 flows carried over"),
        "{said}"
    );
    ensure!(sent > 300 && sent == came, "{sent} sent, {came} came");
    site.one_generation()
}

#[test]
fn case_x21_other_media_ports_rebuild_the_maps_and_lose_nothing() -> Result<()> {
    let mut site = Site::raise()?;
    let small = site.options.clone();
    rebuilt_under_traffic(&mut site, 9_000..=29_999, "entries")?;

    // Killed right after the pins were set aside: the next start finishes.
    let aside = site.options.pin.join(format!("v{ABI}-old1"));
    fs::rename(site.directory(), aside)?;
    site.options = small;
    let (sent, came) = site.under_traffic(|traffic| {
        drop(site.start()?);
        traffic.pass(300)?;
        Ok(())
    })?;
    ensure!(sent > 100 && sent == came, "{sent} sent, {came} came");
    site.one_generation()
}

#[test]
fn case_x21_the_maps_of_another_version_are_replaced_and_the_gap_is_measured() -> Result<()> {
    let site = Site::raise()?;
    let (programs, maps) = site.start()?;
    drop((programs, site.steer(maps)?));
    let sizes = Sizes::of(&site.options)?;
    let plans = shape(&sizes, "PLANS")?;
    let grown = Shape {
        value: plans.value + 8,
        ..plans
    };
    plant(&site.directory(), &grown)?;
    fs::rename(site.directory(), site.options.pin.join("v0"))?;
    let mut gap = Duration::ZERO;
    let (sent, came) = site.under_traffic(|traffic| {
        traffic.pass(200)?;
        let (programs, maps) = site.start()?;
        let said = programs.rebuilt().context("nothing was said")?;
        ensure!(said.contains("no flow could be carried over"), "{said}");
        site.one_generation()?;
        // State comes back by steering: until then media waits.
        let steer = site.steer(maps)?;
        gap = programs.gap().context("no gap was measured")?;
        traffic.pass(300)?;
        drop(steer);
        Ok(())
    })?;
    // A packet a millisecond.
    let lost = Duration::from_millis(sent.saturating_sub(came));
    println!("a gap of {gap:?}, {lost:?} of media lost");
    ensure!(!lost.is_zero() && lost <= gap + SLACK, "{gap:?}, {lost:?}");
    ensure!(gap <= lost + Duration::from_secs(1), "{gap:?}, {lost:?}");
    Ok(())
}

fn shape(sizes: &Sizes, name: &str) -> Result<Shape> {
    let shapes = layout::shapes(sizes);
    let found = shapes.iter().find(|shape| shape.name == name);
    found.copied().context("no such map")
}

#[test]
fn pins_of_another_shape_are_never_loaded_over() -> Result<()> {
    let site = Site::raise()?;
    drop(site.start()?);
    let sizes = Sizes::of(&site.options)?;
    let [state, groups] = [shape(&sizes, "STATE")?, shape(&sizes, "GROUPS")?];
    let addresses = shape(&sizes, "ADDRS")?;
    let planted = [
        (
            "type",
            Shape {
                kind: MapType::LruHash,
                ..addresses
            },
        ),
        (
            "key size",
            Shape {
                key: addresses.key + 4,
                ..addresses
            },
        ),
        (
            "value size",
            Shape {
                value: state.value - 8,
                ..state
            },
        ),
        (
            "entries",
            Shape {
                entries: state.entries - 1,
                ..state
            },
        ),
        ("flags", Shape { flags: 0, ..groups }),
    ];
    for (what, wrong) in planted {
        plant(&site.directory(), &wrong)?;
        let (programs, maps) = site.start().with_context(|| what.to_owned())?;
        let said = programs.rebuilt().with_context(|| what.to_owned())?;
        ensure!(said.contains(what) && said.contains(wrong.name), "{said}");
        drop(maps);
        site.one_generation().with_context(|| what.to_owned())?;
        ensure!(carries_a_program(&site.branch.gw, "lan0")?, "{what}");
    }
    Ok(())
}

/// Whether a start that was killed here left what it must: `Aside` is met before anything new is
/// made, `Attached` between the two links.
#[test]
fn case_x21_a_start_killed_at_any_stage_is_finished_by_the_next_without_a_loss() -> Result<()> {
    let mut site = Site::raise()?;
    let (programs, maps) = site.start()?;
    drop((programs, site.steer(maps)?));
    let stages = [
        Stage::Aside,
        Stage::Loaded,
        Stage::Filling,
        Stage::Attached("lan0"),
        Stage::Attached("wan0"),
        Stage::Unpinning,
    ];
    let mut last = 19_999;
    for killed in stages {
        // Other media ports every time: other maps.
        last += 1_000;
        site.options.media = 10_000..=last;
        let (sent, came) = site.under_traffic(|traffic| {
            let arguments = [PIN, &last.to_string(), &format!("{killed:?}")];
            let program = Launch::new(gateway::built("dying")?).args(arguments);
            let mut dying = site.branch.gw.start(&program)?;
            let status = dying.wait(LIMIT)?;
            ensure!(status.signal() == Some(9), "{status}: {}", dying.tail());
            traffic.pass(100)?;
            let (programs, maps) = site.start()?;
            // No steering: what forwards was carried over.
            drop((programs, maps));
            traffic.pass(100)
        })?;
        ensure!(
            sent > 200 && sent == came,
            "{killed:?}: {sent} sent, {came} came"
        );
        site.one_generation()
            .with_context(|| format!("{killed:?}"))?;
    }
    Ok(())
}

#[test]
fn case_x21_a_media_range_of_the_same_size_that_begins_elsewhere_rebuilds_the_maps() -> Result<()> {
    let mut site = Site::raise()?;
    // As many ports, the flow's among them: every word stands for another port.
    rebuilt_under_traffic(&mut site, 9_000..=18_999, "the media range was another")?;
    // The same range again is the same layout.
    let (programs, _) = site.start()?;
    ensure!(programs.rebuilt().is_none(), "{:?}", programs.rebuilt());
    Ok(())
}
