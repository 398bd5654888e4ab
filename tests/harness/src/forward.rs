// SPDX-License-Identifier: Apache-2.0
//! Forwards ports of this machine's loopback interface into the cluster's network.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A listener on this machine whose connections continue in the cluster. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Forward {
    local: SocketAddr,
    // Dropping it stops the thread.
    _running: oneshot::Sender<()>,
}

impl Forward {
    /// Forwards connections to `remote` in the network namespace of process `pid`.
    pub(crate) async fn start(pid: u32, remote: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("cannot listen on the loopback")?;
        let local = listener.local_addr().context("cannot tell the port")?;
        let listener = listener.into_std().context("cannot hand the listener over")?;
        let (running, ended) = oneshot::channel();
        let (entered, answer) = oneshot::channel();
        // A network namespace belongs to a thread: this one enters the cluster's and opens all connections there.
        std::thread::Builder::new()
            .name("forward".to_owned())
            .spawn(move || match enter(pid) {
                Ok(runtime) => {
                    drop(entered.send(Ok(())));
                    runtime.block_on(async {
                        tokio::select! {
                            _ = ended => {}
                            _ = accept(listener, remote) => {}
                        }
                    });
                }
                Err(error) => {
                    drop(entered.send(Err(error)));
                }
            })
            .context("cannot start a thread")?;
        answer.await.context("the thread that forwards connections ended")??;
        Ok(Self {
            local,
            _running: running,
        })
    }

    /// Returns the address on the loopback interface.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }
}

/// Listens in the network namespace of process `pid`. A socket stays in the namespace of its creation, independent of
/// the thread that uses it.
pub(crate) async fn listen_inside(pid: u32, address: SocketAddrV4) -> Result<std::net::TcpListener> {
    let listen = move || -> Result<std::net::TcpListener> {
        enter_network(pid)?;
        let listener = std::net::TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
        listener.set_nonblocking(true).context("cannot make it asynchronous")?;
        Ok(listener)
    };
    // Uses a separate thread, because the namespace change is permanent.
    let (sender, answer) = oneshot::channel();
    std::thread::Builder::new()
        .name("listen".to_owned())
        .spawn(move || sender.send(listen()))
        .context("cannot start a thread")?;
    answer.await.map_err(|_| anyhow!("the thread that listens ended"))?
}

fn enter_network(pid: u32) -> Result<()> {
    let namespace = std::fs::File::open(format!("/proc/{pid}/ns/net")).context("the cluster's network is gone")?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .context("cannot enter the cluster's network")
}

fn enter(pid: u32) -> Result<tokio::runtime::Runtime> {
    enter_network(pid)?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")
}

async fn accept(listener: std::net::TcpListener, remote: SocketAddr) -> Result<()> {
    let listener = TcpListener::from_std(listener).context("cannot take the listener over")?;
    loop {
        let (mut outside, _) = listener.accept().await.context("cannot accept")?;
        tokio::spawn(async move {
            // The client observes a refused connection as one that is closed immediately.
            let inside = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(remote)).await;
            if let Ok(Ok(mut inside)) = inside {
                drop(tokio::io::copy_bidirectional(&mut outside, &mut inside).await);
            }
        });
    }
}
