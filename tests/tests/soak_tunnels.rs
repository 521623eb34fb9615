//! A thousand random histories of the tunnel monitor; a handful run in the engine's own tests.

#[path = "../../engine/tests/tunnel/histories.rs"]
#[allow(unused, reason = "shared with the engine's tests")]
mod histories;
#[path = "../../engine/tests/tunnel/sim.rs"]
#[allow(unused, reason = "shared with the engine's tests")]
mod sim;

#[test]
fn mx8_a_thousand_histories_keep_what_holds() {
    histories::play_all(0..1_000);
}
