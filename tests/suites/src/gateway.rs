// SPDX-License-Identifier: Apache-2.0
//! A reverse proxy from a lab or a cluster to the outside network, which records every request.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

/// Response timeout, above that of the services.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const BODY_LIMIT: usize = 8 << 20;

/// A listener and its target.
#[derive(Debug)]
pub struct Door {
    /// The listener for clients.
    pub listener: std::net::TcpListener,
    /// Target port on the outside loopback interface.
    pub port: u16,
    /// TLS configuration, if enabled.
    pub tls: Option<Arc<ServerConfig>>,
}

/// A forwarded request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// Listening port of the gateway.
    pub port: u16,
    pub method: String,
    /// Path and query.
    pub path: String,
    /// User-Agent header.
    pub user_agent: String,
    /// HTTP status of the response; 502 without one.
    pub status: u16,
}

/// The proxy. It listens on the loopback interface of its lab, and ends when it is dropped.
#[derive(Debug)]
pub struct Gateway {
    log: Arc<Mutex<Vec<Exchange>>>,
    /// Dropping it stops the thread.
    _end: oneshot::Sender<()>,
}

#[derive(Debug, Clone)]
struct Upstream {
    /// Listening port.
    port: u16,
    /// Address of the service.
    service: SocketAddr,
    client: reqwest::Client,
    log: Arc<Mutex<Vec<Exchange>>>,
    /// Address of the services in responses, and its replacement.
    addresses: Option<(String, String)>,
}

impl Gateway {
    /// Listens on these ports in the network of the calling thread, and forwards to the same ports of the outside
    /// loopback interface.
    pub async fn start(ports: &[u16]) -> Result<Self> {
        let doors = ports.iter().map(|&port| {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))
                .with_context(|| format!("cannot listen on port {port} in the lab"))?;
            let tls = None;
            Ok(Door { listener, port, tls })
        });
        Self::through(doors.collect::<Result<_>>()?, None).await
    }

    /// Forwards connections of these doors. If `host` is set, it replaces the loopback address in responses.
    pub async fn through(doors: Vec<Door>, host: Option<Ipv4Addr>) -> Result<Self> {
        for door in &doors {
            door.listener
                .set_nonblocking(true)
                .context("cannot make a listener asynchronous")?;
        }
        let addresses = host.map(|host| (format!("http://{}:", Ipv4Addr::LOCALHOST), format!("http://{host}:")));
        let log = Arc::new(Mutex::new(Vec::new()));
        let (end, ended) = oneshot::channel();
        let (started, answer) = oneshot::channel();
        let notes = log.clone();
        // Uses a separate thread, because a network namespace belongs to a thread. Sockets stay in the namespace of
        // their creation.
        thread::Builder::new()
            .name("gateway".to_owned())
            .spawn(move || match outside(doors, &notes, addresses.as_ref()) {
                Ok((runtime, servers)) => {
                    drop(started.send(Ok(())));
                    runtime.block_on(async move {
                        tokio::select! {
                            _ = ended => {}
                            _ = futures::future::join_all(servers) => {}
                        }
                    });
                }
                Err(error) => {
                    drop(started.send(Err(error)));
                }
            })
            .context("cannot start a thread")?;
        answer.await.map_err(|_| anyhow!("the gateway's thread ended"))??;
        Ok(Self { log, _end: end })
    }

    /// Returns the requests so far, in the order of their responses.
    pub fn log(&self) -> Vec<Exchange> {
        self.log.lock().clone()
    }

    /// Clears the request log.
    pub fn clear(&self) {
        self.log.lock().clear();
    }
}

type Server = futures::future::BoxFuture<'static, std::io::Result<()>>;

/// Moves this thread to the network namespace of the main thread, which is not in a lab.
fn outside(
    doors: Vec<Door>,
    log: &Arc<Mutex<Vec<Exchange>>>,
    addresses: Option<&(String, String)>,
) -> Result<(tokio::runtime::Runtime, Vec<Server>)> {
    let path = network_outside();
    let namespace = File::open(&path).with_context(|| format!("cannot open {path}"))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("cannot enter {path}: run as root"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot make a runtime")?;
    let client = reqwest::Client::builder()
        .timeout(ANSWER_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .no_gzip()
        .build()
        .context("cannot make a client")?;
    let inside = runtime.enter();
    let servers = doors
        .into_iter()
        .map(|door| -> Result<Server> {
            let address = door.listener.local_addr().context("a listener without an address")?;
            let upstream = Upstream {
                port: address.port(),
                service: SocketAddr::from((Ipv4Addr::LOCALHOST, door.port)),
                client: client.clone(),
                log: log.clone(),
                addresses: addresses.cloned(),
            };
            let listener = TcpListener::from_std(door.listener).context("cannot take a listener over")?;
            let app = axum::Router::new().fallback(pass_on).with_state(upstream);
            Ok(match door.tls {
                Some(config) => {
                    let acceptor = TlsAcceptor::from(config);
                    Box::pin(async move { axum::serve(Secure { listener, acceptor }, app).await })
                }
                None => Box::pin(async move { axum::serve(listener, app).await }),
            })
        })
        .collect::<Result<_>>()?;
    drop(inside);
    Ok((runtime, servers))
}

/// A listener with TLS.
struct Secure {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for Secure {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // An error of one client must not affect the next one.
            let Ok((stream, address)) = self.listener.accept().await else {
                tokio::task::yield_now().await;
                continue;
            };
            let shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.acceptor.accept(stream)).await;
            if let Ok(Ok(stream)) = shaken {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// Returns the path of the main thread's network namespace.
pub(crate) fn network_outside() -> String {
    format!("/proc/{}/ns/net", std::process::id())
}

async fn pass_on(State(upstream): State<Upstream>, request: Request) -> Response {
    let method = request.method().clone();
    let path = request
        .uri()
        .path_and_query()
        .map_or_else(String::new, |path| path.as_str().to_owned());
    let user_agent = request
        .headers()
        .get(header::USER_AGENT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let response = match exchange(&upstream, request, &path).await {
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
    };
    let note = Exchange {
        port: upstream.port,
        method: method.to_string(),
        path,
        user_agent,
        status: response.status().as_u16(),
    };
    upstream.log.lock().push(note);
    response
}

async fn exchange(upstream: &Upstream, request: Request, path: &str) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, BODY_LIMIT).await.context("cannot read the request")?;
    let address = upstream.service;
    let answer = upstream
        .client
        .request(parts.method, format!("http://{address}{path}"))
        .headers(end_to_end(&parts.headers))
        .body(body)
        .send()
        .await
        .with_context(|| format!("{address} does not answer"))?;
    let (status, headers) = (answer.status(), end_to_end(answer.headers()));
    let mut body = answer.bytes().await.context("the answer is cut")?;
    if let Some((from, to)) = &upstream.addresses
        && let Ok(text) = std::str::from_utf8(&body)
    {
        body = text.replace(from, to).into();
    }
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Removes hop-by-hop headers and lengths, which are set again.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    const OF_A_CONNECTION: [HeaderName; 4] = [
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::CONTENT_LENGTH,
        header::UPGRADE,
    ];
    let mut headers = headers.clone();
    for name in OF_A_CONNECTION {
        headers.remove(name);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> std::net::TcpListener {
        std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
    }

    #[tokio::test]
    async fn gateway_rewrites_addresses_and_records_requests() {
        let service = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = service.local_addr().unwrap().port();
        let app = axum::Router::new().fallback(async || "volumes are at http://127.0.0.1:8776/v3");
        tokio::spawn(async move { axum::serve(service, app).await });
        let entrance = listener();
        let address = entrance.local_addr().unwrap();
        let (listener, tls) = (entrance, None);
        let gateway = Gateway::through(vec![Door { listener, port, tls }], Some(Ipv4Addr::new(10, 0, 0, 1)))
            .await
            .unwrap();

        let client = reqwest::Client::builder()
            .no_proxy()
            .user_agent("a driver")
            .build()
            .unwrap();
        let answer = client.get(format!("http://{address}/v3?all=1")).send().await.unwrap();

        assert_eq!(answer.text().await.unwrap(), "volumes are at http://10.0.0.1:8776/v3");
        let expected = Exchange {
            port: address.port(),
            method: "GET".to_owned(),
            path: "/v3?all=1".to_owned(),
            user_agent: "a driver".to_owned(),
            status: 200,
        };
        assert_eq!(gateway.log(), [expected]);
    }

    #[tokio::test]
    async fn unreachable_service_is_bad_gateway() {
        let (entrance, gone) = (listener(), listener().local_addr().unwrap().port());
        let address = entrance.local_addr().unwrap();
        let (listener, tls) = (entrance, None);
        let gateway = Gateway::through(
            vec![Door {
                listener,
                port: gone,
                tls,
            }],
            None,
        )
        .await
        .unwrap();

        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client.get(format!("http://{address}/")).send().await.unwrap();

        assert_eq!(answer.status(), 502);
        assert_eq!(gateway.log().first().map(|call| call.status), Some(502));
    }
}
