//! One connection over a pipe, with little patience.

use tokio::io::{DuplexStream, duplex};

use super::*;
use keepline_engine::net::ListenerId;

const OPTIONS: &[u8] = b"OPTIONS sip:b SIP/2.0\r\nContent-Length: 0\r\n\r\n";

const SHORT: Duration = Duration::from_millis(150);
const LONG: Duration = Duration::from_secs(60);
/// Each test makes short what it is about.
const PATIENT: Patience = Patience {
    message: LONG,
    first: LONG,
    idle: LONG,
    half_ping: LONG,
    write: LONG,
    last_words: LONG,
};

/// A served connection: its far end, what is told of it, and what is written to it.
struct World {
    peer: DuplexStream,
    told: mpsc::Receiver<Heard>,
    out: Option<mpsc::Sender<Vec<u8>>>,
    held: Arc<AtomicUsize>,
    waiting: Arc<AtomicUsize>,
    began: Instant,
}

impl World {
    /// `pipe` bytes may lie between the two ends.
    fn new(pipe: usize, patience: Patience) -> Self {
        let (peer, ours) = duplex(pipe);
        let (heard, told) = mpsc::channel(64);
        let (out, queue) = mpsc::channel(8);
        let (held, waiting) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let wire = Wire {
            key: (ListenerId(0), "192.0.2.1:40000".parse().unwrap()),
            id: 1,
            waiting: waiting.clone(),
            hold: None,
            heard,
            held: held.clone(),
            patience,
        };
        tokio::spawn(serve(ours, wire, queue, true));
        Self {
            peer,
            told,
            out: Some(out),
            held,
            waiting,
            began: Instant::now(),
        }
    }

    async fn say(&mut self, bytes: &[u8]) {
        self.peer.write_all(bytes).await.unwrap();
    }

    async fn told(&mut self) -> Told {
        match self.told.recv().await {
            Some(Heard::Stream(told)) => told,
            other => panic!("{other:?}"),
        }
    }

    async fn frame(&mut self) -> Frame {
        match self.told().await {
            Told::Frame { frame, .. } => frame,
            other => panic!("{other:?}"),
        }
    }

    async fn ended(&mut self) -> Duration {
        let told = self.told().await;
        assert!(matches!(told, Told::Ended { .. }), "{told:?}");
        self.began.elapsed()
    }

    fn answer(&self, bytes: &[u8]) {
        let out = self.out.as_ref().unwrap();
        self.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        out.try_send(bytes.to_vec()).unwrap();
    }
}

#[tokio::test]
async fn em3_a_message_in_parts_is_one_and_holds_memory_no_longer_than_it_takes() {
    let mut world = World::new(4096, PATIENT);
    let (first, rest) = OPTIONS.split_at(10);
    world.say(first).await;
    while world.held.load(Ordering::Relaxed) != 10 {
        tokio::task::yield_now().await;
    }
    world.say(rest).await;
    assert_eq!(world.frame().await, Frame::Message(OPTIONS.to_vec()));
    while world.held.load(Ordering::Relaxed) != 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn em3_who_is_too_slow_is_answered_and_closed() {
    let message = SHORT;
    let mut world = World::new(4096, Patience { message, ..PATIENT });
    world.say(b"OPTIONS sip:b SIP/2.0\r\nVia: x\r\nSub").await;
    // Each byte in time, the message not: what a slow sender that means ill does.
    let mut drip = tokio::time::interval(SHORT / 5);
    let told = loop {
        tokio::select! {
            told = world.told.recv() => break told,
            _ = drip.tick() => world.peer.write_all(b"j").await.unwrap(),
        }
    };
    let Some(Heard::Stream(Told::Broken { why, begun, .. })) = told else {
        panic!("{told:?}")
    };
    assert_eq!(why, Broken::Slow);
    assert_eq!(begun, b"OPTIONS sip:b SIP/2.0\r\nVia: x\r\n\r\n");
    assert!(world.began.elapsed() >= message);
    world.answer(b"SIP/2.0 408 Request Timeout\r\n\r\n");
    world.out = None;
    let mut answer = [0; 31];
    world.peer.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"SIP/2.0 408 Request Timeout\r\n\r\n");
    world.peer.shutdown().await.unwrap();
    world.ended().await;
    assert_eq!(world.held.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn em3_silence_ends_a_connection_sooner_when_nothing_was_ever_said() {
    let first = SHORT;
    let mut world = World::new(4096, Patience { first, ..PATIENT });
    assert!(world.ended().await >= first);
    let idle = SHORT * 2;
    let mut world = World::new(
        4096,
        Patience {
            first,
            idle,
            ..PATIENT
        },
    );
    world.say(OPTIONS).await;
    world.frame().await;
    assert!(world.ended().await >= idle);
}

#[tokio::test]
async fn em3_a_peer_that_does_not_read_is_cut_off() {
    let write = SHORT;
    let mut world = World::new(64, Patience { write, ..PATIENT });
    world.answer(&[b'x'; 4096]);
    assert!(world.ended().await >= write);
    assert_eq!(world.waiting.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn ex3_a_single_crlf_is_an_answer_and_two_are_a_question() {
    let half_ping = SHORT;
    let mut world = World::new(
        4096,
        Patience {
            half_ping,
            ..PATIENT
        },
    );
    world.say(b"\r\n\r\n").await;
    assert_eq!(world.frame().await, Frame::Ping);
    world.say(b"\r\n").await;
    assert_eq!(world.frame().await, Frame::Pong);
    assert!(world.began.elapsed() >= half_ping);
}

#[tokio::test]
async fn em3_garbage_is_told_at_once_and_what_follows_it_is_not_read() {
    let mut world = World::new(4096, PATIENT);
    world.say(OPTIONS).await;
    world.say(b"\x16\x03\x01").await;
    world.say(OPTIONS).await;
    world.frame().await;
    let told = world.told().await;
    let Told::Broken { why, .. } = told else {
        panic!("{told:?}")
    };
    assert_eq!(why, Broken::Foreign);
    world.out = None;
    world.peer.shutdown().await.unwrap();
    world.ended().await;
}
