//! The annotated sample that `keepline config init` writes.

/// A configuration that passes its own check on any machine.
pub const SAMPLE: &str = include_str!("sample.toml");

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Config, Machine, parse, show};
    use super::SAMPLE;

    fn config(text: &str) -> Config {
        match parse(Path::new("k.toml"), text, &Machine::default()) {
            Ok(loaded) => loaded.config,
            Err(faults) => panic!("{}", faults.render(false)),
        }
    }

    /// Every commented setting put in force: `# key = value` and `# [section]`.
    fn uncommented() -> String {
        let setting = |line: &&str| line.starts_with("# [") || line.contains(" = ");
        let lines = SAMPLE.lines().map(|line| match line.strip_prefix("# ") {
            Some(rest) if setting(&line) => rest,
            _ => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn sample_is_clean_and_its_comments_are_the_defaults() {
        let mut all = config(&uncommented());
        assert_eq!(all.interfaces[1].max_calls.take(), Some(200));
        assert!(all.api.take().is_some() && all.tls.take().is_some());
        let tunnels = std::mem::take(&mut all.tunnels);
        let timers = |of: &super::super::model::Tunnel| {
            (
                of.heartbeat_interval,
                of.idle_timeout,
                of.probe_timeout,
                of.detect,
            )
        };
        assert_eq!(
            timers(&tunnels[0]),
            timers(&tunnels[1]),
            "comments are the defaults"
        );
        assert_eq!(std::mem::take(&mut all.segments).len(), 1);
        assert_eq!(all, config(SAMPLE));
    }

    #[test]
    fn what_show_prints_means_the_same() {
        let loaded = parse(Path::new("k.toml"), SAMPLE, &Machine::default()).expect("the sample");
        let shown = show(&loaded.tables);
        assert_eq!(config(&shown), loaded.config, "{shown}");
        let origin = |key: &str| {
            let line = shown
                .lines()
                .find(|line| line.starts_with(key))
                .expect("a key");
            line.rsplit_once("# ").expect("an origin").1.to_owned()
        };
        assert_eq!(origin("drain_grace"), "default");
        let line = SAMPLE
            .lines()
            .position(|l| l.starts_with("udp = "))
            .expect("a listener")
            + 1;
        assert_eq!(origin("udp"), format!("line {line}"));
    }
}
