//! Every kind of configuration fault, with its line, column, sentence and hint.

use std::path::Path;

use keepline::config::{self, Faults, Machine};

/// Lines 1 to 12 of every file below; rows append to it or replace in it.
const BASE: &str = r#"[gateway]
domain = "example.test"
[[interface]]
name = "lan0"
role = "lan"
[[interface]]
name = "wan0"
role = "wan"
[listen]
udp = ["lan0:5060", "wan0:5060"]
[[softswitch]]
name = "core"
servers = [{ uri = "sip:192.0.2.10:5060" }]
"#;

fn faults(text: &str) -> Faults {
    match config::parse(Path::new("k.toml"), text, &Machine::default()) {
        Ok(loaded) => loaded.warnings,
        Err(faults) => faults,
    }
}

/// `LINE:COLUMN MESSAGE | HINT` for each fault that refuses the file.
fn told(text: &str) -> Vec<String> {
    faults(text)
        .places()
        .filter(|p| p.fatal)
        .map(|p| format!("{}:{} {} | {}", p.line, p.column, p.message, p.hint))
        .collect()
}

fn base_with(replace: &str, by: &str) -> String {
    assert!(BASE.contains(replace), "`{replace}` is not in the base");
    BASE.replacen(replace, by, 1)
}

/// Compares what is told about each text; several faults are joined by newlines.
fn check(rows: impl Iterator<Item = (String, &'static str)>) {
    let wrong: Vec<String> = rows
        .filter(|(text, expected)| told(text).join("\n") != *expected)
        .map(|(text, expected)| format!("expected {expected}\n   found {}", told(&text).join("\n")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// One fault by replacing a piece of the base, or by appending to it.
#[test]
fn each_fault_has_its_place_and_hint() {
    let servers = r#"{ uri = "sip:192.0.2.10:5060" }"#;
    let replaced: &[(&str, &str, &str)] = &[
        // The value's kind.
        (
            "name = \"lan0\"",
            "name = 7",
            "4:8 found an integer | write a string in quotes",
        ),
        (
            "udp = [\"lan0:5060\", \"wan0:5060\"]",
            "udp = \"lan0:5060\"",
            "10:7 found a string | write a list in square brackets",
        ),
        (
            "\"lan0:5060\", ",
            "5060, ",
            "10:8 found an integer | write INTERFACE:PORT in quotes: \"lan0:5060\"",
        ),
        (
            "role = \"lan\"",
            "role = \"\"",
            "5:8 `` is not a value of this key | write `lan` or `wan` or `tunnel`",
        ),
        // Words.
        (
            "role = \"lan\"",
            "role = \"lann\"",
            "5:8 `lann` is not a value of this key | write `lan` or `wan` or `tunnel`",
        ),
        (
            "role = \"wan\"",
            "role = \"tunel\"",
            "8:8 `tunel` is not a value of this key | write `lan` or `wan` or `tunnel`",
        ),
        // Keys.
        (
            "name = \"lan0\"",
            "nam = \"lan0\"",
            "3:1 [interface] has no `name` | add `name = \"lan0\"`\n4:1 unknown key `nam` in [interface] | did you mean `name`?",
        ),
        (
            "[listen]",
            "[listen]\nport = 5060",
            "10:1 unknown key `port` in [listen] | known here: udp, tcp, tls, accept",
        ),
        // Interfaces and listeners.
        (
            "name = \"wan0\"",
            "name = \"lan0\"",
            "7:8 interface `lan0` occurs twice | give each its own, or remove one\n10:21 no [[interface]] is named `wan0` | use one of lan0, lan0, or add it",
        ),
        (
            "name = \"wan0\"",
            "name = \"a/very/long/interface\"",
            "7:8 `a/very/long/interface` cannot be an interface's name | 1 to 15 characters without `/`, `:` and blanks: see `ip link`\n10:21 no [[interface]] is named `wan0` | use one of lan0, a/very/long/interface, or add it",
        ),
        (
            "\"wan0:5060\"",
            "\"wan1:5060\"",
            "10:21 no [[interface]] is named `wan1` | use one of lan0, wan0, or add it",
        ),
        (
            "\"wan0:5060\"",
            "\"lan0:5060\"",
            "10:21 listener `lan0:5060` occurs twice | give each its own, or remove one",
        ),
        (
            "\"wan0:5060\"",
            "\"wan0\"",
            "10:21 `wan0` is not a listener | write INTERFACE:PORT or ADDRESS:PORT, such as `lan0:5060` or `192.0.2.1:5060`",
        ),
        (
            "\"wan0:5060\"",
            "\"0.0.0.0:5060\"",
            "10:21 `0.0.0.0:5060` names no interface | name each interface: what arrives is treated by the side it arrives on",
        ),
        (
            "role = \"wan\"",
            "role = \"lan\"",
            "4:8 no interface faces the softswitches | give the interface that softswitches are reached over `role = \"wan\"`",
        ),
        (
            "role = \"lan\"",
            "role = \"wan\"",
            "4:8 no interface faces the phones | give the interface that phones are on `role = \"lan\"`",
        ),
        // Servers.
        (
            servers,
            "",
            "11:1 a softswitch needs 1 to 32 servers | add `servers = [{ uri = \"sip:192.0.2.10:5060\" }]`",
        ),
        (
            servers,
            "{ priority = 1 }",
            "13:12 [softswitch.servers] has no `uri` | add `uri = \"sip:192.0.2.10:5060\"`",
        ),
        (
            servers,
            r#"{ uri = "sip:core.example.test" }"#,
            "13:20 `sip:core.example.test` names a host; names are not looked up in this version | write the server's address: `sip:192.0.2.10:5060`",
        ),
        (
            servers,
            r#"{ uri = "sip:192.0.2.10;transport=tcp" }"#,
            "13:20 this server is spoken to over TCP, which no WAN interface listens for | add `\"wan0:5060\"`, with your interface's name, to [listen] tcp",
        ),
        (
            servers,
            r#"{ uri = "http://192.0.2.10" }"#,
            "13:20 `http://192.0.2.10` is not a SIP URI | write `sip:ADDRESS:PORT`, such as `sip:192.0.2.10:5060`",
        ),
        (
            servers,
            r#"{ uri = "sip:192.0.2.10" }, { uri = "sip:192.0.2.10:5060" }"#,
            "13:48 server `192.0.2.10:5060` occurs twice | give each its own, or remove one",
        ),
        (
            servers,
            r#"{ uri = "sip:224.0.0.1" }"#,
            "13:20 no softswitch can have the address 224.0.0.1 | write the address of one machine",
        ),
        (
            servers,
            r#"{ uri = "sip:[::]:5060" }"#,
            "13:20 no softswitch can have the address :: | write the address of one machine",
        ),
        (
            servers,
            r#"{ uri = "sip:192.0.2.10", weight = 0 }"#,
            "13:47 `weight` = 0 is out of range | write a value from 1 to 65535",
        ),
        (
            servers,
            r#"{ uri = "sip:192.0.2.10", priority = 99999 }"#,
            "13:49 99999 is out of range | write a number from 0 to 65535",
        ),
        (
            "domain = \"example.test\"",
            "",
            "11:1 [softswitch] has no `domain` | add `domain = \"example.test\"`",
        ),
        // TOML itself.
        (
            "name = \"core\"",
            "name = core",
            "12:8 not TOML: string values must be quoted, expected literal string | put it into double quotes",
        ),
        (
            "[listen]",
            "[listen",
            "9:8 not TOML: unclosed table, expected `]` | the format is described at https://toml.io",
        ),
        (
            "role = \"lan\"",
            "role = \"lan\"\nrole = \"lan\"",
            "6:1 not TOML: duplicate key | remove one of them",
        ),
    ];
    check(
        replaced
            .iter()
            .map(|(old, new, expected)| (base_with(old, new), *expected)),
    );
}

#[test]
fn each_setting_out_of_bounds_has_its_place_and_hint() {
    // Appended to the softswitch: line 14.
    let softswitch: &[(&str, &str)] = &[
        (
            "srv = \"_sip._udp.example.test\"",
            "14:7 `softswitch.srv` is not supported in this version | names are not looked up in this version: type the servers' addresses",
        ),
        (
            "upstream_key = \"k\"",
            "14:16 `softswitch.upstream_key` is not supported in this version | remove it: upstream marks are neither read nor sent",
        ),
        (
            "intervall = \"10s\"",
            "14:1 unknown key `intervall` in [softswitch] | did you mean `interval`?",
        ),
        (
            "interval = \"10\"",
            "14:12 `10` is not a duration: time unit needed, for example 10sec or 10ms | write a number and a unit, such as `1500ms`, `10s`, `5m` or `14d`",
        ),
        (
            "interval = \"100ms\"",
            "14:12 `interval` = \"100ms\" is out of range | write a value from \"1s\" to \"1h\"",
        ),
        (
            "timeout = \"11s\"",
            "14:11 `timeout` is longer than `interval` | write at most 10s",
        ),
        (
            "timeout = \"1ms\"",
            "14:11 `timeout` is too short | write at least 100ms",
        ),
        (
            "passive_timeout = \"100ms\"",
            "14:19 `passive_timeout` is too short | write at least 500ms",
        ),
        (
            "slow_timeout = \"1s\"",
            "14:16 `slow_timeout` is shorter than `passive_timeout` | write at least 1s 500ms",
        ),
        (
            "max_unanswered = 0",
            "14:18 `max_unanswered` = 0 is out of range | write a value from 1 to 100",
        ),
        (
            "down_codes = [401]",
            "14:15 401 cannot mean that a server is down | a challenge proves that the server is alive: remove it",
        ),
        (
            "down_codes = [503, 200]",
            "14:20 200 cannot mean that a server is down | write final responses from 300 to 699",
        ),
        (
            "inbound = [\"192.0.2.0/33\"]",
            "14:12 `192.0.2.0/33` is not a network | write ADDRESS/PREFIX, such as `192.0.2.0/24`, or one address",
        ),
        (
            "backoff = { initial = \"2s\", max = \"1s\" }",
            "14:35 `max` is shorter than `initial` | write at least 2s",
        ),
        (
            "backoff = { max_alone = \"400s\" }",
            "14:25 `max_alone` is longer than `max` | write at most 5m",
        ),
        (
            "failback = \"now\"",
            "14:12 `now` is not a value of this key | write `registration` or `immediate` or `manual`",
        ),
        (
            "[[softswitch]]\nname = \"other\"\nservers = [{ uri = \"sip:192.0.2.11\" }]",
            "14:1 domain `example.test` occurs twice | give each its own, or remove one",
        ),
        (
            "[[softswitch]]\nname = \"core\"\ndomain = \"other.test\"\nservers = [{ uri = \"sip:192.0.2.11\" }]",
            "15:8 softswitch `core` occurs twice | give each its own, or remove one",
        ),
        // Sections of their own: the header is line 14.
        (
            "[media]\nports = \"10000-40000\"",
            "15:9 media ports 10000-40000 overlap the kernel's ephemeral ports 32768-60999 | end below 32768, or move net.ipv4.ip_local_port_range",
        ),
        (
            "[media]\nports = \"5000-6000\"",
            "15:9 media ports 5000-6000 contain the listener's port 5060 | move one of them",
        ),
        (
            "[media]\nports = \"500-5000\"",
            "15:9 media ports begin at 500, among the system's own | begin at 1024 or above (RFC 6335 section 6)",
        ),
        (
            "[media]\nports = \"10000-10002\"",
            "15:9 a call needs four media ports | widen the range: RTP and RTCP on each side of each call",
        ),
        (
            "[media]\nports = \"20000-10000\"",
            "15:9 `20000-10000` ends before it begins | write `10000-20000`",
        ),
        (
            "[media]\nports = 10000",
            "15:9 found an integer | write a range in quotes: \"10000-32767\"",
        ),
        (
            "[media]\nice = \"lite\"",
            "15:7 `lite` is not a value of this key | write `strip` or `relay` or `pass`",
        ),
        (
            "[fastpath]\npin = \"keepline\"",
            "15:7 `keepline` is not an absolute path | begin it with `/`: the daemon's working directory is not yours",
        ),
        (
            "[fastpath]\nguard = { bound = \"50\" }",
            "15:19 `50` is not a rate | write a whole number per second, such as `50/s`",
        ),
        (
            "[fastpath]\nguard = { bound = \"0/s\" }",
            "15:19 `bound` = \"0/s\" is out of range | write a value from \"1/s\" to \"10000000/s\"",
        ),
        (
            "[survivability]\npolicy = \"local-users\"",
            "15:10 `local-users` is not supported in this version | write `off` or `known` or `open-lan`",
        ),
        (
            "[survivability]\naliases = { last_digits = [3, 16] }",
            "15:31 no number has 16 last digits | write 1 to 15 (ITU-T E.164)",
        ),
        (
            "[registration]\nphone_expires = \"60s\"",
            "15:17 found a string | write a table",
        ),
        (
            "[keepalive]\nstun = \"never\"",
            "15:8 `never` is not a value of this key | write `auto` or `on` or `off`",
        ),
        (
            "[store]\npath = \"\"",
            "15:8 `` is not an absolute path | begin it with `/`: the daemon's working directory is not yours",
        ),
        (
            "[api]",
            "14:1 [api] has no `listen` | add `listen = \"127.0.0.1:9060\"`",
        ),
        (
            "[api]\nlisten = \"9060\"",
            "15:10 `9060` is not an address and a port | write ADDRESS:PORT, such as `127.0.0.1:9060` or `[::1]:9060`",
        ),
        (
            "[pstn]\ncountry = \"US\"",
            "14:1 `pstn` is not supported in this version | remove it: calls to numbers go to the softswitch",
        ),
        (
            "[[tunnel]]\nname = \"a\"",
            "14:1 [tunnel] has no `interface` | add `interface = \"vxlan10\"`\n\
             14:1 [tunnel] has no `health_check_ip` | add `health_check_ip = \"203.0.113.1\"`",
        ),
        (
            "[[tunnel]]\nname = \"a\"\ninterface = \"t0\"\nhealth_check_ip = \"192.0.2.1\"",
            "15:8 no [[segment]] uses the tunnel `a` | name it in the `tunnels` of a [[segment]], or remove it",
        ),
        (
            "[[segment]]\ntunnels = [\"b\"]",
            "15:12 there is no tunnel `b` | name one of the [[tunnel]] tables",
        ),
        (
            "[mesh]\nkey = \"k\"",
            "14:1 `mesh` is not supported in this version | remove it: this gateway stands alone",
        ),
        (
            "[softwitch]\nname = \"a\"",
            "14:2 unknown key `softwitch` in the file | did you mean `softswitch`?",
        ),
    ];
    check(
        softswitch
            .iter()
            .map(|(more, expected)| (format!("{BASE}{more}\n"), *expected)),
    );
}

#[test]
fn what_works_but_not_wholly_is_a_warning() {
    let text = base_with(", \"wan0:5060\"", "");
    let loaded = config::parse(Path::new("k.toml"), &text, &Machine::default()).expect("usable");
    let places: Vec<_> = loaded.warnings.places().collect();
    assert_eq!(places.len(), 1);
    assert_eq!(
        (places[0].line, places[0].column, places[0].fatal),
        (7, 8, false)
    );
    assert_eq!(
        places[0].message,
        "nothing listens on `wan0`: no SIP is spoken over it"
    );
    assert_eq!(places[0].hint, "add `\"wan0:5060\"` to [listen] udp");
}

#[test]
fn every_fault_is_told_not_only_the_first() {
    let text = BASE
        .replace("role = \"wan\"", "role = \"van\"\nspeed = 3")
        .replace("sip:192.0.2.10:5060", "sip:core.example.test")
        + "interval = 10\nprobe = \"sometimes\"\nbackof = {}\n[media]\nports = \"1-2\"\n";
    let lines: Vec<usize> = faults(&text).places().map(|p| p.line).collect();
    assert_eq!(lines, [8, 9, 14, 15, 16, 17, 19, 19], "{:#?}", told(&text));
}

#[test]
fn syntax_faults_do_not_hide_the_others() {
    let text = base_with("name = \"core\"", "name = core") + "interval = \"10\"\nx = 1\n";
    let lines: Vec<usize> = faults(&text).places().map(|p| p.line).collect();
    assert_eq!(lines, [12, 14, 15], "{:#?}", told(&text));
}

#[test]
fn an_empty_file_says_all_that_is_missing() {
    let expected = [
        "no [[interface]]",
        "[listen] has no `udp`",
        "no [[softswitch]]",
    ];
    let faults = faults("");
    let messages: Vec<&str> = faults.places().map(|p| p.message).collect();
    assert_eq!(messages, expected);
}

#[test]
fn the_base_of_these_tests_is_clean() {
    assert_eq!(told(BASE), Vec::<String>::new());
}

#[test]
fn em20_transparent_mode_cannot_serve_phones_over_tls_nor_show_them_to_the_softswitch() {
    let transparent = base_with("[gateway]", "[gateway]\nmode = \"transparent\"");
    let tls = "\n[tls]\ncert = \"/c\"\nkey = \"/k\"\n";
    let with = |listen: &str| {
        let replaced = transparent.replace("[listen]", &format!("[listen]\ntls = [\"{listen}\"]"));
        replaced + tls
    };
    assert_eq!(told(&transparent), [""; 0]);
    assert_eq!(told(&with("wan0:5061")), [""; 0]);
    let refused = told(&with("lan0:5061"));
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].starts_with("11:8 phones over TLS cannot be served in transparent mode"));
}

#[test]
fn em20_only_transparent_mode_may_show_phones_to_the_softswitch_and_it_needs_xdp() {
    let shown = "[gateway]\nhide_topology = false";
    assert_eq!(
        told(&base_with("[gateway]", shown)),
        [
            "2:17 `hide_topology = false` belongs to transparent mode | write `true`, or leave it \
             out"
        ]
    );
    let transparent = base_with("[gateway]", &format!("{shown}\nmode = \"transparent\""));
    assert_eq!(told(&transparent), [""; 0]);
    let bare = transparent.replacen("role = \"lan\"", "role = \"lan\"\nxdp = \"off\"", 1);
    let refused = told(&bare);
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(
        refused[0].contains("`hide_topology = false` needs XDP on `lan0`"),
        "{refused:?}"
    );
}
