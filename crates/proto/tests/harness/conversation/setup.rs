//! What kind of world the first bytes choose: wire, sizes, stocks, policies, moods.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use netblt_proto::config::{
    AuthorizedKeys, Config, FecPercent, FecPolicy, FixedRate, Identity, Policy, Role, Secret,
    StaticKey, UNLIMITED_BURST, Wire,
};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_proto::wire::packet::{Burst, End};

use super::super::bytes::Bytes;

/// Packets and buffers in a whole transfer at most, so that one input takes milliseconds.
const MAX_PACKETS: usize = 240;
const MAX_BUFFERS: usize = 40;

/// The two clients, and the settings of their machines.
pub struct Setup {
    /// The wire of both ends.
    pub wire: Wire,
    /// Who opens.
    pub sender_is_active: bool,
    /// The settings of the sender's machine.
    pub sender: Config,
    /// The settings of the receiver's machine.
    pub receiver: Config,
    /// Buffers of the sender's client and the receiver's.
    pub stocks: (usize, usize),
    /// Whether each client does all it can at once, or waits for events to make it.
    pub automatic: [bool; 2],
    /// END as soon as the connection is open, not behind the last buffer.
    pub early_end: bool,
    /// The last buffer is said to be the last on `sealed` too.
    pub flag_last: bool,
    /// The verdict.
    pub verified: bool,
    /// `rfc998`: datagrams may be forged with valid checksums. Then nothing is promised but that
    /// no end panics and no buffer is lost.
    pub hostile: bool,
    /// How many units the transfer has, and of which lengths its buffers are.
    pub shape: Shape,
    /// The ends prove themselves by static keys, not by a secret.
    pub by_keys: bool,
}

/// A client and a server that know each other's keys.
pub struct Keys {
    pub client: StaticKey,
    pub server: StaticKey,
    pub of_client: Identity,
    pub of_server: Identity,
}

impl Keys {
    /// Always the same ones, computed once.
    pub fn shared() -> &'static Self {
        static KEYS: OnceLock<Keys> = OnceLock::new();
        KEYS.get_or_init(|| {
            let [client, server] = [5, 6].map(|byte| StaticKey::from_bytes([byte; 32]));
            let of_client = Identity::client(client.clone(), server.public());
            let (authorized, _) = AuthorizedKeys::new(server.clone(), &[client.public()]);
            let of_server = Identity::server(Arc::new(authorized));
            Self { client, server, of_client: of_client.expect("a key that is one"), of_server }
        })
    }
}

/// The transfer before the buffer size is known.
#[derive(Clone, Copy)]
pub struct Shape {
    units: u8,
    lengths: u8,
}

impl Setup {
    /// The world that `bytes` choose.
    pub fn read(bytes: &mut Bytes<'_>) -> Self {
        let flags = bytes.byte();
        Self::with_flags(flags, bytes)
    }

    /// A `sealed` world in which one end says what it likes.
    pub fn of_rogue(bytes: &mut Bytes<'_>) -> Self {
        let flags = bytes.byte() & !1;
        Self { hostile: true, ..Self::with_flags(flags, bytes) }
    }

    fn with_flags(flags: u8, bytes: &mut Bytes<'_>) -> Self {
        let moods = bytes.byte();
        let wire = if flags & 1 == 0 { Wire::Sealed } else { Wire::Rfc998 };
        let mut sender = Config::new(wire, Role::Sender);
        let mut receiver = Config::new(wire, Role::Receiver);
        let fixed = flags >> 1 & 3 == 0;
        sender.policy = match flags >> 1 & 3 {
            1 => Policy::Fair { ceiling: Some(Rate::from_bytes_per_second(20_000)) },
            _ => Policy::Fair { ceiling: None },
        };
        (sender.checksum, receiver.checksum) = (flags & 8 != 0, flags & 16 != 0);
        for config in [&mut sender, &mut receiver] {
            config.secret = Some(Secret([7; 32]));
            config.cipher = bytes.pick([Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305]);
            size(config, bytes);
        }
        sender.burst = burst(bytes);
        // Without an interval there is no pace, and a fair sender takes the values for no limit.
        if let Some(pace) = FixedRate::bursts(sender.burst).filter(|_| fixed) {
            sender.policy = Policy::Fixed(pace);
        }
        // `sealed` has no use for these bits.
        sender.repair = match flags >> 6 & 3 {
            1 => FecPolicy::Auto,
            2 => FecPercent::percent(25).map_or(FecPolicy::Never, FecPolicy::Share),
            _ => FecPolicy::Never,
        };
        receiver.burst = if moods & 1 == 0 { UNLIMITED_BURST } else { burst(bytes) };
        let by_keys = wire == Wire::Sealed && moods & 64 != 0;
        if by_keys {
            let keys = Keys::shared();
            let (active, passive) = match flags & 32 != 0 {
                true => (&mut sender, &mut receiver),
                false => (&mut receiver, &mut sender),
            };
            active.identity = Some(keys.of_client.clone());
            passive.identity = Some(keys.of_server.clone());
        }
        let stocks = bytes.byte();
        Self {
            wire,
            by_keys,
            sender_is_active: flags & 32 != 0,
            sender,
            receiver,
            stocks: (1 + usize::from(stocks & 7), 1 + usize::from(stocks >> 4 & 7)),
            automatic: [moods & 2 == 0, moods & 4 == 0],
            early_end: moods & 8 != 0,
            flag_last: moods & 16 != 0,
            verified: moods & 32 == 0,
            hostile: wire == Wire::Rfc998 && moods & 192 == 192,
            shape: Shape { units: bytes.byte(), lengths: bytes.byte() },
        }
    }

    /// Whether data are checksummed (`rfc998`).
    pub fn data_are_checksummed(&self) -> bool {
        self.sender.checksum || self.receiver.checksum
    }

    /// The transfer, now that a buffer holds `image_bytes` in packets of `packet_bytes`.
    pub fn plan(&self, image_bytes: u32, packet_bytes: u32) -> Plan {
        let (image, packet) = (image_bytes as usize, packet_bytes as usize);
        let Shape { units, lengths } = self.shape;
        let units = usize::from(units);
        let most = MAX_PACKETS * packet;
        let mut lens = Vec::new();
        if self.wire == Wire::Rfc998 {
            let most = most.min(MAX_BUFFERS * image);
            let total = (units * packet / 2 + usize::from(lengths)).min(most);
            let whole = total / image;
            lens.resize(whole, image);
            if total % image > 0 || whole == 0 {
                lens.push(total % image);
            }
        } else {
            let count = (units % MAX_BUFFERS).min((most / image).max(1));
            lens.extend((1..=count).map(|n| match lengths % 4 {
                0 => image,
                1 => (n * (1 + usize::from(lengths)) * 97) % (image + 1),
                2 => n % 2,
                _ => image.min(packet * (n % 3)),
            }));
        }
        Plan { lens }
    }
}

fn size(config: &mut Config, bytes: &mut Bytes<'_>) {
    let (packet, most, tail) = (bytes.byte(), bytes.byte(), bytes.byte());
    config.datagram_bytes = match config.wire {
        Wire::Sealed => [60, 64, 96, 148, 300, 599, 648, 1232][usize::from(packet % 8)],
        Wire::Rfc998 => [40, 41, 64, 100, 124, 536, 1024, 1232][usize::from(packet % 8)],
    };
    config.buffer_bytes = match config.wire {
        Wire::Sealed => 1 << (10 + packet / 8 % 3),
        Wire::Rfc998 => [16, 17, 64, 1000, 1024, 2048, 3001, 4096][usize::from(packet / 8 % 8)],
    };
    config.table_bytes = [0, 4, 100, 1024][usize::from(tail % 4)];
    config.overhead_bytes = if tail & 4 == 0 { 28 } else { 48 };
    config.max_outstanding = 1 + u32::from(most % 8);
    config.death_timer = Duration::from_secs([1, 5, 30, 300][usize::from(most / 8 % 4)]);
    config.client = "ö".repeat(usize::from(tail / 8) * 8);
    config.trace = most & 64 != 0;
}

fn burst(bytes: &mut Bytes<'_>) -> Burst {
    let packets = bytes.pick([1, 2, 8, 64, 65_535]);
    let micros = bytes.pick([0, 50, 1_000, 2_000, 20_000, 100_000]);
    Burst { packets, interval: Duration::from_micros(micros) }
}

/// The transfer: what is in which buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    lens: Vec<usize>,
}

impl Plan {
    /// How many buffers it has.
    pub fn count(&self) -> u64 {
        self.lens.len() as u64
    }

    /// Writes buffer `number` into `space`; answers its length.
    pub fn write(&self, number: u64, space: &mut [u8]) -> usize {
        let len = self.len_of(number);
        for (at, byte) in space[..len].iter_mut().enumerate() {
            *byte = content(number, at);
        }
        len
    }

    /// Whether `image` is that of buffer `number`.
    pub fn is(&self, number: u64, image: &[u8]) -> bool {
        (1..=self.count()).contains(&number)
            && image.len() == self.len_of(number)
            && image.iter().enumerate().all(|(at, byte)| *byte == content(number, at))
    }

    /// END as the sender's client says it.
    pub fn end(&self) -> End {
        let bytes = self.lens.iter().sum::<usize>() as u64;
        End { buffers: self.count(), bytes, digest: [9; 32] }
    }

    fn len_of(&self, number: u64) -> usize {
        self.lens[number as usize - 1]
    }
}

/// A byte that is another one at every other place.
fn content(number: u64, at: usize) -> u8 {
    let place = (number as u32) << 16 ^ at as u32;
    (place.wrapping_mul(0x9e37_79b1) >> 24) as u8
}
