//! The limit: packets sealed and sent, received and opened, one thread a side, and nothing else. No
//! repair, no rate, no acknowledgement; what is lost is counted and missing.
//!
//! A packet is its number (8 bytes), ciphertext and tag. GSO out, GRO in, AES-256-GCM from the crate
//! that netblt uses, sealed where it is sent from and opened to where it would stay.

use std::array;
use std::io::{ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::{Outcome, Task, tell};

const NUMBER_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
/// What one send may carry, and how many packets.
const BATCH_BYTES: usize = 65_507;
const MAX_SEGMENTS: usize = 64;
/// As netblt asks for.
const KERNEL_BUFFER_BYTES: usize = 4 << 20;
/// Memory at both ends that the data come from and go to, so that no cache holds all of it.
const MEMORY_BYTES: usize = 64 << 20;
const SLOTS: usize = 16;
const SLOT_BYTES: usize = 1 << 16;
/// The receiver has heard the last of it after this.
const SILENCE: Duration = Duration::from_millis(500);
/// The number of a packet that says that there is no other.
const END: u64 = u64::MAX;

fn key() -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32]).expect("32 bytes"))
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn socket(address: SocketAddr) -> std::io::Result<(Socket, UdpSocketState)> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&SockAddr::from(address))?;
    let _ = socket.set_recv_buffer_size(KERNEL_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(KERNEL_BUFFER_BYTES);
    let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
    Ok((socket, state))
}

fn wait(socket: &Socket, what: PollFlags, longest: Duration) -> std::io::Result<bool> {
    let mut fds = [PollFd::new(socket, what)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: longest.subsec_nanos().into() };
    Ok(poll(&mut fds, Some(&timeout))? > 0)
}

/// Sends as fast as the socket takes it.
pub(crate) fn call(task: Task) -> Outcome {
    let any = match task.address {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let (socket, state) = socket(any.parse()?)?;
    let key = key();
    let memory: Vec<u8> = (0..MEMORY_BYTES).map(|at| (at >> 3) as u8).collect();
    let body = task.packet - NUMBER_BYTES - TAG_BYTES;
    let segments = (BATCH_BYTES / task.packet).min(state.max_gso_segments()).clamp(1, MAX_SEGMENTS);
    let packets = task.bytes.div_ceil(body as u64);
    let mut batch = Vec::with_capacity(BATCH_BYTES);
    let (mut number, mut at) = (0, 0);
    while number < packets {
        batch.clear();
        for _ in 0..segments.min((packets - number) as usize) {
            if at + body > memory.len() {
                at = 0;
            }
            batch.extend_from_slice(&number.to_be_bytes());
            let start = batch.len();
            batch.extend_from_slice(&memory[at..at + body]);
            let tag = key
                .seal_in_place_separate_tag(nonce(number), Aad::empty(), &mut batch[start..])
                .map_err(|_| "cannot seal")?;
            batch.extend_from_slice(tag.as_ref());
            (number, at) = (number + 1, at + body);
        }
        send(&socket, &state, task, &batch)?;
    }
    for _ in 0..10 {
        send(&socket, &state, task, &[END.to_be_bytes(), packets.to_be_bytes()].concat())?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn send(socket: &Socket, state: &UdpSocketState, task: Task, contents: &[u8]) -> Outcome {
    let transmit = Transmit {
        destination: task.address,
        ecn: None,
        contents,
        segment_size: Some(task.packet),
        src_ip: None,
    };
    loop {
        match state.try_send(UdpSockRef::from(socket), &transmit) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait(socket, PollFlags::OUT, Duration::from_millis(100))?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Opens what comes, until it is said to be all or nothing comes any more.
pub(crate) fn serve(task: Task) -> Outcome {
    let (socket, state) = socket(task.address)?;
    println!("listening");
    let key = key();
    let mut memory = vec![1; MEMORY_BYTES];
    let mut space = vec![1; SLOTS * SLOT_BYTES];
    let (mut bytes, mut packets, mut said) = (0, 0, None);
    let mut times: Option<(Instant, Instant)> = None;
    let mut at = 0;
    while said.is_none() {
        let mut meta = [RecvMeta::default(); SLOTS];
        let mut chunks = space.chunks_mut(SLOT_BYTES);
        let mut slots: [IoSliceMut<'_>; SLOTS] =
            array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        let count = match state.recv(UdpSockRef::from(&socket), &mut slots, &mut meta) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if !wait(&socket, PollFlags::IN, SILENCE)? && times.is_some() {
                    break;
                }
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let now = Instant::now();
        for (slot, meta) in space.chunks(SLOT_BYTES).zip(&meta).take(count) {
            for packet in slot[..meta.len].chunks(meta.stride.max(1)) {
                let Some((number, sealed)) = packet.split_first_chunk() else { continue };
                let number = u64::from_be_bytes(*number);
                if number == END {
                    said = sealed.first_chunk().map(|all| u64::from_be_bytes(*all));
                    continue;
                }
                let body = sealed.len() - TAG_BYTES;
                if at + body > memory.len() {
                    at = 0;
                }
                let (sealed, tag) = sealed.split_at(body);
                let out = &mut memory[at..at + body];
                key.open_separate_gather(nonce(number), Aad::empty(), sealed, tag, out)
                    .map_err(|_| "cannot open")?;
                (at, bytes, packets) = (at + body, bytes + body as u64, packets + 1);
                times = Some((times.map_or(now, |(first, _)| first), now));
            }
        }
    }
    let (first, last) = times.ok_or("nothing came")?;
    tell(bytes, last - first, Some(said.unwrap_or(packets) - packets));
    Ok(())
}
