//! One door for every task of the project.

fn main() {}
