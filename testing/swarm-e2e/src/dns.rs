//! The DNS responder of the cluster: names of Services and of pods behind them, from two watches.
//!
//! The responder is a separate process. So it restarts with the other components when the cluster
//! is rolled back, and can be broken by its name. While the API server is unavailable it answers
//! from its caches. Names outside of the cluster do not exist.

mod message;
mod names;

use std::fmt::Debug;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::{Stream, StreamExt as _};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use self::message::Transport;
use self::names::Names;
use crate::output::complain;

/// The port for queries over UDP and TCP.
const PORT: u16 = 53;
/// The longest query over UDP. A longer query is cut off, and refused as malformed.
const QUERY_BYTES_MAX: usize = 4096;
/// The most connections at a time. A further one waits.
const CONNECTIONS_MAX: usize = 64;
/// The bound on a connection.
const CONNECTION_WITHIN: Duration = Duration::from_secs(10);

/// Waits until all Services are known, and answers queries at `address` until the process ends.
///
/// # Errors
///
/// When the address cannot be used, or a watch ends.
pub async fn serve(kubeconfig: &Path, address: Ipv4Addr) -> Result<()> {
    let client = crate::cluster::client(kubeconfig).await?;
    let (services, follow_services) = followed(&client);
    let (slices, follow_slices) = followed(&client);
    let answers = async {
        let names = Names { services, slices };
        names.filled().await?;
        let names = Arc::new(names);
        let socket = UdpSocket::bind((address, PORT)).await.context("cannot listen on UDP")?;
        let listener = TcpListener::bind((address, PORT)).await.context("cannot listen on TCP")?;
        tokio::try_join!(datagrams(&socket, &names), connections(&listener, &names)).map(drop)
    };
    tokio::select! {
        result = answers => result,
        () = follow_services.for_each(report) => bail!("the watch of Services has ended"),
        () = follow_slices.for_each(report) => bail!("the watch of EndpointSlices has ended"),
    }
}

type Followed<K> = Result<watcher::Event<K>, watcher::Error>;

/// Returns a store of all objects of a kind, and the stream that keeps it up to date.
fn followed<K>(client: &Client) -> (Store<K>, impl Stream<Item = Followed<K>> + Send + use<K>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher(Api::all(client.clone()), watcher::Config::default());
    (store, events.default_backoff().reflect(writer))
}

/// Reports a failure of a watch. The watch itself retries.
async fn report<K>(event: Followed<K>) {
    if let Err(err) = event {
        complain(format_args!("{:#}", anyhow::Error::new(err)));
    }
}

async fn datagrams(socket: &UdpSocket, names: &Names) -> Result<()> {
    let mut query = [0; QUERY_BYTES_MAX];
    loop {
        let (length, client) = socket.recv_from(&mut query).await?;
        if let Some(answer) = message::answer(names, &query[..length], Transport::Udp) {
            // A failed send is harmless: the client has gone away.
            let _ = socket.send_to(&answer, client).await;
        }
    }
}

async fn connections(listener: &TcpListener, names: &Arc<Names>) -> Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await?;
        let (stream, _) = listener.accept().await?;
        let names = Arc::clone(names);
        tokio::spawn(async move {
            // The client notices every end of its connection.
            let _ = tokio::time::timeout(CONNECTION_WITHIN, connection(stream, &names)).await;
            drop(place);
        });
    }
}

/// Answers the queries of one connection. The length precedes each message.
async fn connection(mut stream: TcpStream, names: &Names) -> Result<()> {
    loop {
        let mut query = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut query).await?;
        if let Some(answer) = message::answer(names, &query, Transport::Tcp) {
            stream.write_u16(answer.len().try_into()?).await?;
            stream.write_all(&answer).await?;
        }
    }
}
