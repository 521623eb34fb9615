//! The table of connections, over the loopback.

use std::net::{TcpListener, TcpStream as Peer};

use super::*;

const LISTENER: ListenerId = ListenerId(0);

/// A table that listens.
struct World {
    streams: Streams,
    told: mpsc::Receiver<Heard>,
    at: SocketAddr,
}

impl World {
    fn new() -> Self {
        let (heard, told) = mpsc::channel(1024);
        let mut streams = Streams::new(heard, Duration::from_secs(300), Handle::current());
        let any = "127.0.0.1:0".parse().unwrap();
        streams.listen(LISTENER, "lo", any, (false, false)).unwrap();
        let at = streams.places[&LISTENER].listening.local_addr().unwrap();
        Self { streams, told, at }
    }

    /// What happened next, the end of earlier connections apart.
    async fn news(&mut self) -> Told {
        loop {
            match self.told().await {
                Told::Ended { key, id } if !self.streams.is_current(key, id) => {}
                told => return told,
            }
        }
    }

    async fn told(&mut self) -> Told {
        let told = tokio::time::timeout(Duration::from_secs(10), self.told.recv());
        match told.await {
            Ok(Some(Heard::Stream(told))) => told,
            other => panic!("{other:?}"),
        }
    }

    /// Somebody connects; what he is called, and whether he is let in.
    async fn connect(&mut self) -> (Peer, Key, bool) {
        let peer = Peer::connect(self.at).unwrap();
        let Told::Accepted { key, socket } = self.news().await else {
            panic!("not accepted")
        };
        assert_eq!(key.1, peer.local_addr().unwrap());
        (peer, key, self.streams.adopt(key, socket))
    }
}

#[tokio::test]
async fn em3_one_source_gets_so_many_connections_and_no_more() {
    let mut world = World::new();
    let mut peers = Vec::new();
    for _ in 0..MAX_PER_SOURCE {
        let (peer, key, taken) = world.connect().await;
        assert!(taken);
        peers.push((peer, key));
    }
    assert!(!world.connect().await.2);
    assert_eq!(world.streams.refused(), 1);
    let (_, key) = peers.pop().unwrap();
    assert!(world.streams.close(key));
    assert!(world.connect().await.2, "one left, one may come");
    assert_eq!(world.streams.count(LISTENER), MAX_PER_SOURCE);
}

#[tokio::test]
async fn em3_a_peer_that_does_not_read_holds_a_bounded_queue_and_then_nothing() {
    let mut world = World::new();
    let (_peer, key, _) = world.connect().await;
    let mut sent = 0;
    let refused = loop {
        match world.streams.send(key, vec![b'x'; 4096]) {
            Ok(()) => sent += 4096,
            Err(why) => break why,
        }
        assert!(sent < 64 << 20, "nothing bounds it");
        tokio::task::yield_now().await;
    };
    assert_eq!(refused, Refused::NotRead);
    assert_eq!(world.streams.count(LISTENER), 0);
}

#[tokio::test]
async fn em3_a_message_opens_the_connection_it_needs_and_the_next_one_takes_it() {
    let mut world = World::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let key = (LISTENER, server.local_addr().unwrap());
    world.streams.send(key, b"one".to_vec()).unwrap();
    world.streams.send(key, b"two".to_vec()).unwrap();
    let heard = tokio::task::spawn_blocking(move || {
        let (mut socket, _) = server.accept().unwrap();
        let mut heard = [0; 6];
        std::io::Read::read_exact(&mut socket, &mut heard).unwrap();
        (heard, socket)
    });
    let (heard, socket) = heard.await.unwrap();
    assert_eq!(&heard, b"onetwo");
    drop(socket);
    assert!(matches!(world.told().await, Told::Opened { .. }));
    let told = world.told().await;
    let Told::Ended { key: ended, id } = told else {
        panic!("{told:?}")
    };
    assert!(ended == key && world.streams.is_current(key, id));
}

#[tokio::test]
async fn em3_a_connection_that_is_refused_is_told_as_such() {
    let mut world = World::new();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let key = (LISTENER, nobody.local_addr().unwrap());
    drop(nobody);
    world.streams.send(key, b"one".to_vec()).unwrap();
    let told = world.told().await;
    let Told::Failed {
        key: failed, why, ..
    } = told
    else {
        panic!("{told:?}")
    };
    assert!(failed == key && why.contains("refused"), "{why}");
}

#[tokio::test]
async fn em3_an_alias_leads_over_the_connection_that_was_offered() {
    let mut world = World::new();
    let (mut peer, key, _) = world.connect().await;
    let of = "127.0.0.1:9".parse().unwrap();
    world.streams.alias(LISTENER, key.1, of);
    world
        .streams
        .send((LISTENER, of), b"hello".to_vec())
        .unwrap();
    let heard = tokio::task::spawn_blocking(move || {
        let mut heard = [0; 5];
        std::io::Read::read_exact(&mut peer, &mut heard).unwrap();
        heard
    });
    assert_eq!(&heard.await.unwrap(), b"hello");
    assert!(world.streams.close(key));
    assert!(world.streams.aliases.is_empty());
}

/// The loopback stands for both devices: what shows is that the socket of the connection, and not
/// only the listener's, is bound anew, and that a connection that cannot move is told as lost.
#[tokio::test]
async fn mx8_connections_move_to_the_device_that_carries_their_interface() {
    let mut world = World::new();
    let (_bare, key, _) = world.connect().await;
    assert_eq!(
        world.streams.carry("lo", "lo"),
        [key],
        "made before, it cannot move"
    );
    world.streams.may_carry("lo");
    let (mut peer, key, _) = world.connect().await;
    let hold = world.streams.connections[&key].socket.clone().unwrap();
    while hold.get().is_none() {
        tokio::task::yield_now().await;
    }
    let bound = || {
        let device = socket2::SockRef::from(hold.get().unwrap()).device();
        device.unwrap().unwrap_or_default()
    };
    socket2::SockRef::from(hold.get().unwrap())
        .bind_device(None)
        .unwrap();
    assert!(world.streams.carry("lo", "lo").is_empty());
    assert_eq!(bound(), b"lo");
    world.streams.send(key, b"hello".to_vec()).unwrap();
    let heard = tokio::task::spawn_blocking(move || {
        let mut heard = [0; 5];
        std::io::Read::read_exact(&mut peer, &mut heard).unwrap();
        heard
    });
    assert_eq!(&heard.await.unwrap(), b"hello");
    assert_eq!(world.streams.carry("lo", "no-such-device"), [key]);
    assert_eq!(world.streams.count(LISTENER), 0);
    assert_eq!(world.streams.device("lo"), "no-such-device");
}

#[tokio::test]
async fn mx8_connections_that_a_mark_leads_are_bound_to_no_device() {
    let mut world = World::new();
    world.streams.may_carry("lo");
    world.streams.mark("lo", 0x6b65_0000);
    let (_peer, key, _) = world.connect().await;
    let hold = world.streams.connections[&key].socket.clone().unwrap();
    while hold.get().is_none() {
        tokio::task::yield_now().await;
    }
    let socket = socket2::SockRef::from(hold.get().unwrap());
    match socket.mark() {
        Ok(0x6b65_0000) => assert_eq!(socket.device().unwrap(), None),
        // Without CAP_NET_ADMIN there is no mark: it stays where it connected.
        other => assert_eq!(
            (other.unwrap(), socket.device().unwrap()),
            (0, Some(b"lo".into()))
        ),
    }
    if socket.device().unwrap().is_none() {
        assert!(world.streams.carry("lo", "no-such-device").is_empty());
        assert!(world.streams.rebind("lo").is_empty());
        assert_eq!(world.streams.count(LISTENER), 1);
    }
}
