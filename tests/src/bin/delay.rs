//! `delay LISTEN TARGET MILLISECONDS`: a TCP proxy that hands on every byte so much later, each way, in order.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, target, delay] = arguments.as_slice() else {
        anyhow::bail!("delay LISTEN TARGET MILLISECONDS");
    };
    let listen: SocketAddr = listen.parse().context("LISTEN")?;
    let target: SocketAddr = target.parse().context("TARGET")?;
    let delay = Duration::from_millis(delay.parse().context("MILLISECONDS")?);
    for incoming in TcpListener::bind(listen)?.incoming() {
        let incoming = incoming?;
        thread::spawn(move || {
            // What fails here ends one connection, as a network would.
            let _ = relay(incoming, target, delay);
        });
    }
    Ok(())
}

fn relay(near: TcpStream, target: SocketAddr, delay: Duration) -> anyhow::Result<()> {
    let far = TcpStream::connect_timeout(&target, Duration::from_secs(10))?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let back = (far.try_clone()?, near.try_clone()?);
    let forth = thread::spawn(move || later(near, far, delay));
    later(back.0, back.1, delay)?;
    let _ = forth.join();
    Ok(())
}

/// Copies until either side ends.
fn later(mut from: TcpStream, mut to: TcpStream, delay: Duration) -> anyhow::Result<()> {
    let (queue, held) = mpsc::channel::<(Instant, Vec<u8>)>();
    let writer = thread::spawn(move || {
        for (due, bytes) in held {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    let mut buffer = [0; 64 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if queue.send((Instant::now() + delay, buffer[..n].to_vec())).is_err() {
            break;
        }
    }
    drop(queue);
    let _ = writer.join();
    let _ = from.shutdown(Shutdown::Both);
    Ok(())
}
