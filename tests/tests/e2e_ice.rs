//! ICE between phones, by way of the gateway or past it (`[media] ice`).

use anyhow::Result;
use keepline_tests::matrix::ice;

#[test]
fn em18_relayed_checks_go_by_one_candidate_of_the_gateway() -> Result<()> {
    ice::relayed()
}

#[test]
fn passed_descriptions_are_untouched_and_the_call_is_shown_as_not_anchored() -> Result<()> {
    ice::passed()
}
