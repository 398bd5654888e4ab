// SPDX-License-Identifier: Apache-2.0
//! Puts the parts together: client, metrics, admin server, leader election, watches, controller.

use std::{collections::BTreeSet, future::ready, io, sync::Arc};

use cinder_cloud::CloudOptions;
use cinder_csi_crds::{CinderCSIDriver, GROUP, PLURAL};
use cinder_operator_core::{
    cluster::{Affected, KINDS},
    resolve::namespace_of,
};
use csi_kit::{
    admin::{HealthChecks, HttpServer, metrics_router},
    metrics::{BuildInfo, Metrics as Registry},
    signals, telemetry,
};
use csi_sources::Sources;
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Client, Config, ResourceExt,
    api::{ListParams, ObjectMeta, PartialObjectMeta},
    runtime::{
        Controller, Predicate, PredicateConfig, WatchStreamExt, controller, predicates, reflector,
        reflector::{ObjectRef, Store, store::Writer},
        watcher,
    },
};
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    apply,
    args::{Args, Command, RunArgs, VERSION},
    commands::{error::Error, render},
    controller::{Context, Memories, Watched, error_policy, reconcile},
    credentials::{Checker, RealKeystone},
    events::Events,
    kubernetes::{GuardedApi, answer, connect},
    leader::{Elector, LeaseSettings},
    metrics::Metrics,
    object_leases::ObjectLeases,
    observe::{Changes, Cluster, Wake, WatchHealth, WatchLoop, Woken, hear, hear_ours, wake_ups},
    scrape::{self, Certificate, KubernetesAccess},
};

/// Name under which the operator reports events and competes for its Lease.
const PROGRAM: &str = "cinder-csi-operator";

/// How long one request of a login may take: short, because the next change of the Secret waits behind it.
const LOGIN_REQUEST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// How long the first list of the CinderCSIDrivers may take. Another replica has the same chance after that.
const DRIVERS_LIMIT: std::time::Duration = std::time::Duration::from_mins(2);

/// How many objects are reconciled at once.
const CONCURRENCY: u16 = 4;

/// How long reconciles may take to end after shutdown was asked for.
const DRAIN: std::time::Duration = std::time::Duration::from_secs(20);

/// Does what the command line says.
pub async fn execute(args: Args) -> Result<(), Error> {
    match args.command {
        Command::Run(args) => run(args).await?,
        Command::Crd => render::crd(&mut io::stdout().lock())?,
        Command::Render(args) => render::render(&args, &mut io::stdout().lock())?,
    }
    Ok(())
}

/// Runs the operator until a signal or the loss of the Lease.
async fn run(args: RunArgs) -> Result<(), Error> {
    telemetry::init(&args.log_level, args.log_format)?;
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| Error::TlsProvider)?;
    let shutdown = signals::shutdown().map_err(Error::Signals)?;
    let sources = Sources::system();
    let identity = args
        .pod_name
        .clone()
        .unwrap_or_else(|| format!("{PROGRAM}-{}", sources.uuid()));
    info!(version = VERSION, identity, namespace = args.namespace, "starting");

    let registry = Registry::new(BuildInfo {
        program: "cinder_csi_operator",
        version: VERSION,
        revision: option_env!("CINDER_CSI_REVISION").unwrap_or_default(),
    })?;
    let metrics = Arc::new(Metrics::within(registry.registry().clone())?);
    let client = client().await?;

    let (phase, phases) = watch::channel(Phase::Starting);
    let metrics_server = metrics_server(&args, registry, client.clone(), &shutdown).await?;
    let admin = admin_server(&args, phases, &shutdown).await?;
    check_crd(&client).await?;

    let mut known = Known::watch(&client, &args, &metrics);
    let is_known = tokio::select! {
        () = known.cluster.wait_until_known(|missing| drop(phase.send_replace(Phase::Listing(missing)))) => true,
        () = shutdown.cancelled() => false,
    };
    let process = format!("{identity}_{}", sources.uuid());
    let settings = LeaseSettings::new(&args.namespace, &args.lease_name, &process);
    let installation = (args.namespace.as_str(), args.lease_name.as_str());
    let leases = ObjectLeases::new(client.clone(), installation, &process, sources.clone());
    let leases = Arc::new(leases);
    // Only a replica that knows the cluster can lead.
    let leader = if is_known {
        phase.send_replace(Phase::StandingBy);
        Elector::new(client.clone(), settings, sources.clone())
            .acquire(&shutdown)
            .await
    } else {
        None
    };
    let result = match leader {
        None => Ok(()),
        Some(mut leader) => {
            // At a loss of the Lease this is dropped with all reconciles; after a signal it ends when they are done.
            let work = lead(
                &args,
                known,
                Arc::clone(&metrics),
                Leadership {
                    identity,
                    leases: Arc::clone(&leases),
                    phase,
                },
                sources,
                shutdown.clone(),
            );
            let as_long_as_it_lasts = CancellationToken::new();
            let result = tokio::select! {
                result = work => {
                    leases.release_all().await;
                    leader.release().await;
                    result
                }
                Err(lost) = leader.keep(&as_long_as_it_lasts) => {
                    warn!(%lost, "no longer leading; ending, so that a fresh process stands by");
                    Ok(())
                }
            };
            metrics.leading(false);
            result
        }
    };
    shutdown.cancel();
    // It ends within its own drain time.
    for server in [admin, metrics_server] {
        if let Err(error) = server.await {
            warn!(%error, "an HTTP server ended badly");
        }
    }
    info!("ended");
    result
}

/// How far the program is, for `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Starting,
    /// With what is missing.
    Listing(String),
    StandingBy,
    Leading,
}

/// The cluster as its watches show it, and the changes that they report.
struct Known {
    client: Client,
    namespaces: Vec<String>,
    cluster: Cluster,
    wake: Wake,
    woken: Woken,
}

impl Known {
    fn watch(client: &Client, args: &RunArgs, metrics: &Arc<Metrics>) -> Self {
        let namespaces = namespaces(args);
        let (wake, woken) = wake_ups();
        Self {
            cluster: Cluster::watch(client, &namespaces, &wake, Arc::clone(metrics)),
            client: client.clone(),
            namespaces,
            wake,
            woken,
        }
    }
}

async fn admin_server(
    args: &RunArgs,
    phases: watch::Receiver<Phase>,
    shutdown: &CancellationToken,
) -> Result<tokio::task::JoinHandle<io::Result<()>>, Error> {
    let checks = HealthChecks::default().readiness(move || {
        ready(match &*phases.borrow() {
            Phase::Starting => Err("starting".to_owned()),
            Phase::Listing(missing) => Err(format!("reading the cluster: {missing}")),
            // One that stands by is ready: it can take over.
            Phase::StandingBy | Phase::Leading => Ok(()),
        })
    });
    let bound = HttpServer::bind(&args.admin_address, checks.router(), None).await;
    let bound = bound.map_err(|source| Error::AdminServer {
        address: args.admin_address.clone(),
        source,
    })?;
    info!(address = %bound.local_addr(), "admin server listens");
    Ok(tokio::spawn(bound.serve(shutdown.clone())))
}

async fn metrics_server(
    args: &RunArgs,
    registry: Registry,
    client: Client,
    shutdown: &CancellationToken,
) -> Result<tokio::task::JoinHandle<io::Result<()>>, Error> {
    let failed = |source| Error::MetricsServer {
        address: args.metrics_address.clone(),
        source,
    };
    if args.insecure_metrics {
        let bound = HttpServer::bind(&args.metrics_address, metrics_router(registry), None).await;
        return Ok(tokio::spawn(bound.map_err(failed)?.serve(shutdown.clone())));
    }
    let certificate = match (&args.metrics_certificate, &args.metrics_key) {
        (Some(certificate), Some(key)) => Certificate::from_files(certificate, key),
        _ => Certificate::self_signed(&format!("{PROGRAM}-metrics.{}.svc", args.namespace)),
    }?;
    let access = Arc::new(KubernetesAccess::new(client));
    let bound = scrape::bind(&args.metrics_address, certificate, registry, access).await;
    let bound = bound.map_err(failed)?;
    info!(address = %bound.local_addr(), "metrics are served over TLS");
    Ok(tokio::spawn(bound.serve(shutdown.clone())))
}

async fn client() -> Result<Client, Error> {
    let mut config = Config::infer()
        .await
        .map_err(|error| Error::Configure(Box::new(error)))?;
    // Failures are shown in the status and tried again by the reconcile; hidden repeats would only delay that.
    config.default_retry = false;
    connect(config).map_err(|error| Error::Connect(Box::new(error)))
}

/// Fails with the remedy when the CRD is not there.
async fn check_crd(client: &Client) -> Result<(), Error> {
    let drivers: GuardedApi<PartialObjectMeta<CinderCSIDriver>> = GuardedApi::all(client.clone());
    let listed = drivers.list_guarded(&ListParams::default().limit(1)).await;
    listed.map(drop).map_err(|source| match &source {
        kube::Error::Api(status) if status.code == 404 => Error::NoCrd {
            group: GROUP,
            source: Box::new(source),
        },
        _ => Error::ListDrivers(answer(&source)),
    })
}

/// What only the leading process has.
struct Leadership {
    /// The process, as events name it.
    identity: String,
    leases: Arc<ObjectLeases>,
    phase: watch::Sender<Phase>,
}

/// Reconciles until `shutdown`.
async fn lead(
    args: &RunArgs,
    Known {
        client,
        namespaces,
        cluster,
        wake,
        woken,
    }: Known,
    metrics: Arc<Metrics>,
    Leadership {
        identity,
        leases,
        phase,
    }: Leadership,
    sources: Sources,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let health = cluster.health();
    let options = CloudOptions {
        user_agent: format!("{PROGRAM}/{VERSION}"),
        request_timeout: LOGIN_REQUEST_TIMEOUT,
        observer: Arc::clone(&metrics) as Arc<dyn cinder_cloud::Observer>,
        sources: sources.clone(),
        ..CloudOptions::default()
    };
    let (store, writer) = reflector::store::<Watched>();
    let _hearing = hear_operands(&client, &namespaces, &store, &wake, &health);
    let leading = Arc::clone(&metrics);
    let context = Arc::new(Context {
        client: client.clone(),
        writer: apply::Writer::new(client.clone(), Arc::clone(&metrics)),
        sources: sources.clone(),
        cluster,
        events: Events::new(
            client.clone(),
            PROGRAM,
            &identity,
            Arc::clone(&metrics),
            sources.clone(),
        ),
        metrics,
        checker: Checker::new(Box::new(RealKeystone { options })),
        namespace: args.namespace.clone(),
        operand_namespaces: args.operand_namespaces.clone(),
        leases,
        images: args.images.0.clone(),
        restrictions: args.restrictions(),
        drivers: store.clone(),
        idle_interval: args.credentials_check_interval,
        reconcile_timeout: args.reconcile_timeout,
        registration_deadline: args.registration_deadline,
        memories: Memories::default(),
    });
    let stopped = shutdown.clone();
    let work = controller(&client, woken, &context, writer, health)
        .graceful_shutdown_on(async move { stopped.cancelled().await })
        .run(reconcile, error_policy, Arc::clone(&context))
        .for_each(|result| {
            match result {
                Err(controller::Error::QueueError(error)) => warn!(%error, "a watch failed; it is tried again"),
                // Whoever took its finalizer off: no series may go on telling of it.
                Err(controller::Error::ObjectNotFound(gone)) => {
                    context.forget(&gone.name);
                    context.leases.forget(&gone.name);
                }
                // Failed reconciles were logged by the error policy.
                _ => {}
            }
            ready(())
        });
    tokio::pin!(work);
    let listed = async {
        match tokio::time::timeout(DRIVERS_LIMIT, store.wait_until_ready()).await {
            Ok(Ok(())) => {
                leading.leading(true);
                phase.send_replace(Phase::Leading);
                std::future::pending().await
            }
            _ => Error::ListDrivers(context.cluster.failing_watches().join("; ")),
        }
    };
    tokio::select! {
        () = &mut work => {}
        error = listed => return Err(error),
        () = shutdown.cancelled() => {
            if tokio::time::timeout(DRAIN, work).await.is_err() {
                warn!("a reconcile did not end in time and was cut; the next start finishes it");
            }
        }
    }
    Ok(())
}

/// The namespaces where drivers may run, the operator's own first; each once.
fn namespaces(args: &RunArgs) -> Vec<String> {
    let mut namespaces = vec![args.namespace.clone()];
    for namespace in args.operand_namespaces.iter().filter(|name| !name.is_empty()) {
        if !namespaces.contains(namespace) {
            namespaces.push(namespace.clone());
        }
    }
    namespaces
}

/// The controller with everything that wakes it: its own objects at once, all else at the pace of the wake-ups.
fn controller(
    client: &Client,
    woken: Woken,
    context: &Arc<Context>,
    writer: Writer<Watched>,
    health: WatchHealth,
) -> Controller<Watched> {
    let drivers: GuardedApi<CinderCSIDriver> = GuardedApi::all(client.clone());
    let events = watcher(drivers.into_inner(), watcher::Config::default()).boxed();
    let changes = WatchLoop::new(PLURAL, PLURAL.to_owned(), events, health)
        .into_stream()
        .reflect(writer)
        .touched_objects()
        // Not our own writes of the status; the uid tells a new object of an old name apart.
        .predicate_filter(
            predicates::generation
                .combine(predicates::finalizers)
                .combine(predicates::annotations),
            PredicateConfig::default(),
        )
        .inspect_ok({
            let context = Arc::clone(context);
            move |driver| context.record_change(&driver.name_any(), Instant::now())
        });
    // Without a debounce: each request would put off the one before it, without end while they come.
    Controller::for_stream(changes, context.drivers.clone())
        .with_config(controller::Config::default().concurrency(CONCURRENCY))
        .reconcile_on(affected(woken, Arc::clone(context)))
}

/// Watches what the operator makes and what its objects refer to; the first of the namespaces is the operator's. The watches end when
/// this is dropped.
fn hear_operands(
    client: &Client,
    namespaces: &[String],
    store: &Store<Watched>,
    wake: &Wake,
    health: &WatchHealth,
) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    let Some(operators) = namespaces.first() else {
        return watches;
    };
    // What may be absent is watched where it is looked for.
    for kind in KINDS.iter().filter(|kind| kind.optional.is_none()) {
        // What has no namespace is watched once.
        for namespace in namespaces.iter().take(if kind.namespaced { usize::MAX } else { 1 }) {
            watches.spawn(hear_ours(client, kind, namespace, wake, health));
        }
    }
    for namespace in namespaces {
        let uses = |drivers: Store<Watched>| {
            let place = (namespace.clone(), operators.clone());
            move |metadata: &ObjectMeta| {
                let name = metadata.name.as_deref().unwrap_or_default();
                Affected::Drivers(using(&drivers, &place, name))
            }
        };
        let (of_secrets, of_maps) = (uses(store.clone()), uses(store.clone()));
        let secrets: GuardedApi<PartialObjectMeta<Secret>> = GuardedApi::namespaced(client.clone(), namespace);
        let maps: GuardedApi<PartialObjectMeta<ConfigMap>> = GuardedApi::namespaced(client.clone(), namespace);
        let all = watcher::Config::default;
        let wakes = || (wake.clone(), health.clone());
        watches.spawn(hear("Secret", secrets, all(), wakes(), of_secrets));
        watches.spawn(hear("ConfigMap", maps, all(), wakes(), of_maps));
    }
    watches
}

/// The drivers whose credentials or CA bundle are in the object of this name, in the first namespace; the second is the operator's.
fn using(drivers: &Store<Watched>, place: &(String, String), name: &str) -> BTreeSet<String> {
    let (namespace, operators) = place;
    let uses = |driver: &CinderCSIDriver| {
        if namespace_of(driver, operators) != namespace {
            return false;
        }
        let proxy = driver
            .spec
            .proxy
            .as_ref()
            .and_then(|proxy| proxy.ca_bundle_ref.as_ref());
        let is_of_proxy = proxy.is_some_and(|reference| reference.name == name);
        is_of_proxy
            || driver.spec.clouds.iter().any(|cloud| {
                let client = cloud.client_cert_secret_ref.as_ref();
                cloud.credentials_secret_ref.name == name
                    || client.is_some_and(|reference| reference.name == name)
                    || cloud
                        .ca_bundle_ref
                        .as_ref()
                        .is_some_and(|reference| reference.name == name)
            })
    };
    drivers
        .state()
        .iter()
        .filter(|driver| driver.0.as_ref().is_ok_and(uses))
        .map(|driver| driver.name_any())
        .collect()
}

/// Turns changes of the cluster into the drivers that they concern.
fn affected(woken: Woken, context: Arc<Context>) -> impl Stream<Item = ObjectRef<Watched>> {
    futures::stream::unfold(woken, |mut woken| async move { Some((woken.next().await, woken)) }).flat_map(
        move |(first, Changes { whole, volumes })| {
            let mut affected = Vec::new();
            for driver in context.drivers.state() {
                let name = driver.name_any();
                if whole.includes(&name) {
                    context.request_full_reconcile(&name);
                } else if !volumes.includes(&name) {
                    continue;
                }
                context.record_change(&name, first);
                affected.push(ObjectRef::from_obj(driver.as_ref()));
            }
            futures::stream::iter(affected)
        },
    )
}
