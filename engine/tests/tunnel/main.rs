//! The tunnel monitor in simulated time, and the prober against hostile answers.

mod arithmetic;
mod fuzz_corpus;
mod histories;
mod probe;
mod sim;
mod switching;
mod table;

#[test]
fn mx8_random_histories_keep_what_holds() {
    histories::play_all(0..12);
}
