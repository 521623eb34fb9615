//! ICE between phones, by way of the gateway or past it (`[media] ice`).

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::baresip::{Baresip, Kit};
use keepline_tests::lab::kamailio::DOMAIN;
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::{gateway, wait};
use keepline_tests::matrix::ice;

/// Two seconds of G.711.
const ENOUGH: u64 = 100;
/// What browsers do: connectivity checks, then DTLS for the keys of SRTP, all on one port.
const KIT: Kit = Kit {
    modules: &["ice", "srtp", "dtls_srtp"],
    account: ";medianat=ice;mediaenc=dtls_srtp",
};

#[test]
fn em18_relayed_checks_go_by_one_candidate_of_the_gateway() -> Result<()> {
    ice::relayed()
}

#[test]
fn passed_descriptions_are_untouched_and_the_call_is_shown_as_not_anchored() -> Result<()> {
    ice::passed()
}

#[test]
fn phones_that_insist_on_ice_and_dtls_talk_through_the_gateway() -> Result<()> {
    let mut opening = Opening {
        lan: 1,
        far: 1,
        ..Opening::default()
    };
    opening.config += "[media]\nice = \"relay\"\n";
    let office = Office::open(&opening)?;
    let (phones, far) = (&office.branch.phones, &office.branch.far);
    let mut callee = Baresip::start_with(far, &office.far[0], 20_000, &[], &KIT)?;
    let dial = format!("/dial sip:{}@{DOMAIN}", office.far[0].user);
    let mut caller = Baresip::start_with(phones, &office.lan[0], 21_000, &[&dial], &KIT)?;
    for phone in [&caller, &callee] {
        phone.says("Call established", LIMIT)?;
        phone.says("connectivity check is complete", LIMIT)?;
    }
    wait::until("the tone flows both ways", LIMIT, || {
        let flows = office.ask(&["flows"]).ok()?;
        let flows = gateway::list(&flows, "flows").iter();
        let carried = flows.filter_map(|flow| flow["packets"].as_u64());
        (carried.filter(|packets| *packets >= ENOUGH).count() >= 2).then_some(())
    })
    .with_context(|| {
        let flows = office.ask(&["flows"]).map(|flows| flows.to_string());
        format!("{flows:?}\n{}\n{}", caller.text(), callee.text())
    })?;
    caller.quit()?;
    callee.says("terminated", LIMIT)?;
    callee.quit()?;
    for text in [caller.text(), callee.text()] {
        ensure!(text.contains("DTLS-SRTP"), "not encrypted: {text}");
    }
    Ok(())
}
