// SPDX-License-Identifier: Apache-2.0
//! Connects the components: client, metrics, admin server, leader election, watches, controller.

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
    events::Events,
    kubernetes::{GuardedApi, answer, connect},
    leader::{Elector, LeaseSettings},
    metrics::Metrics,
    object_leases::ObjectLeases,
    observe::{
        ChangeReceiver, ChangeSender, Changes, Cluster, WatchHealth, WatchLoop, change_channel, hear, watch_operands,
    },
    openstack::{LoginCheck, RealKeystone},
    scrape::{self, Certificate, KubernetesAccess},
};

/// Name of the operator in events and in its Lease.
const PROGRAM: &str = "cinder-csi-operator";

/// Maximum duration of one request of a login. It is short, because the next change of the Secret waits for it.
const LOGIN_REQUEST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Maximum duration of the first list of the CinderCSIDrivers. Then this process ends, and another replica can lead.
const DRIVERS_LIMIT: std::time::Duration = std::time::Duration::from_mins(2);

/// Maximum number of simultaneous reconciles.
const CONCURRENCY: u16 = 4;

/// Maximum time for reconciles to complete after the shutdown signal.
const DRAIN: std::time::Duration = std::time::Duration::from_secs(20);

/// Executes the command of the command line.
pub async fn execute(args: Args) -> Result<(), Error> {
    match args.command {
        Command::Run(args) => run(args).await?,
        Command::Crd => render::crd(&mut io::stdout().lock())?,
        Command::Render(args) => render::render(&args, &mut io::stdout().lock())?,
    }
    Ok(())
}

/// Runs the operator until a signal arrives or the Lease is lost.
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

    let mut known = ObservedCluster::watch(&client, &args, &metrics);
    let is_known = tokio::select! {
        () = known.cluster.wait_until_known(|missing| drop(phase.send_replace(Phase::Listing(missing)))) => true,
        () = shutdown.cancelled() => false,
    };
    let process = format!("{identity}_{}", sources.uuid());
    let settings = LeaseSettings::new(&args.namespace, &args.lease_name, &process);
    let installation = (args.namespace.as_str(), args.lease_name.as_str());
    let leases = ObjectLeases::new(client.clone(), installation, &process, sources.clone());
    let leases = Arc::new(leases);
    // Only a replica with complete first lists can lead.
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
            // When the Lease is lost, this future is dropped with all reconciles. After a signal, it ends when the
            // reconciles are complete.
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
            let never_stopped = CancellationToken::new();
            let result = tokio::select! {
                result = work => {
                    leases.release_all().await;
                    leader.release().await;
                    result
                }
                Err(lost) = leader.renew_until_stopped(&never_stopped) => {
                    warn!(%lost, "no longer leading; ending, so that a fresh process stands by");
                    Ok(())
                }
            };
            metrics.leading(false);
            result
        }
    };
    shutdown.cancel();
    // Each server ends within its own drain time.
    for server in [admin, metrics_server] {
        if let Err(error) = server.await {
            warn!(%error, "an HTTP server ended badly");
        }
    }
    info!("ended");
    result
}

/// State of the program, for `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Starting,
    /// Contains a description of the missing lists.
    Listing(String),
    StandingBy,
    Leading,
}

/// The index of the cluster, and the changes that its watches report.
struct ObservedCluster {
    client: Client,
    namespaces: Vec<String>,
    cluster: Cluster,
    wake: ChangeSender,
    woken: ChangeReceiver,
}

impl ObservedCluster {
    fn watch(client: &Client, args: &RunArgs, metrics: &Arc<Metrics>) -> Self {
        let namespaces = namespaces(args);
        let (wake, woken) = change_channel();
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
            // A standby replica is ready, because it can take over.
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
    // The status reports failures, and the reconcile retries them. Hidden retries in the client would delay that.
    config.default_retry = false;
    connect(config).map_err(|error| Error::Connect(Box::new(error)))
}

/// Fails with the remedy if the CRD does not exist.
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

/// State of the leading process.
struct Leadership {
    /// Name of the process in events.
    identity: String,
    leases: Arc<ObjectLeases>,
    phase: watch::Sender<Phase>,
}

/// Reconciles until `shutdown`.
async fn lead(
    args: &RunArgs,
    ObservedCluster {
        client,
        namespaces,
        cluster,
        wake,
        woken,
    }: ObservedCluster,
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
    let _hearing = watch_related_objects(&client, &namespaces, &store, &wake, &health);
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
        login_check: LoginCheck::new(Box::new(RealKeystone { options })),
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
                // Another client removed the finalizer. The series of the driver must not remain.
                Err(controller::Error::ObjectNotFound(deleted)) => {
                    context.forget(&deleted.name);
                    context.leases.forget(&deleted.name);
                }
                // The error policy has logged failed reconciles.
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

/// The namespaces of drivers without duplicates; the first is the operator's own.
fn namespaces(args: &RunArgs) -> Vec<String> {
    let mut namespaces = vec![args.namespace.clone()];
    for namespace in args.operand_namespaces.iter().filter(|name| !name.is_empty()) {
        if !namespaces.contains(namespace) {
            namespaces.push(namespace.clone());
        }
    }
    namespaces
}

/// Builds the controller with its triggers: changes of its own objects immediately, and all other changes at the pace
/// of [`change_channel`].
fn controller(
    client: &Client,
    woken: ChangeReceiver,
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
        // The filter excludes the operator's own writes of the status. The uid distinguishes a new object from a
        // deleted one of the same name.
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
    // The controller has no debounce: each request would delay the previous one, without a limit while requests arrive.
    Controller::for_stream(changes, context.drivers.clone())
        .with_config(controller::Config::default().concurrency(CONCURRENCY))
        .reconcile_on(affected_drivers(woken, Arc::clone(context)))
}

/// Watches the objects that the operator creates, and the objects that they refer to. The first namespace is the
/// operator's. The watches end when the result is dropped.
fn watch_related_objects(
    client: &Client,
    namespaces: &[String],
    store: &Store<Watched>,
    wake: &ChangeSender,
    health: &WatchHealth,
) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    let Some(operators) = namespaces.first() else {
        return watches;
    };
    // Discovery watches the optional kinds.
    for kind in KINDS.iter().filter(|kind| kind.optional.is_none()) {
        // A kind without a namespace is watched once.
        for namespace in namespaces.iter().take(if kind.namespaced { usize::MAX } else { 1 }) {
            watches.spawn(watch_operands(client, kind, namespace, wake, health));
        }
    }
    for namespace in namespaces {
        let uses = |drivers: Store<Watched>| {
            let place = (namespace.clone(), operators.clone());
            move |metadata: &ObjectMeta| {
                let name = metadata.name.as_deref().unwrap_or_default();
                Affected::Drivers(drivers_using(&drivers, &place, name))
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

/// The drivers whose credentials or CA bundle are in the object of this name. `place` contains the namespace of the
/// object, and the operator's namespace.
fn drivers_using(drivers: &Store<Watched>, place: &(String, String), name: &str) -> BTreeSet<String> {
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

/// Converts changes of the cluster into the affected drivers.
fn affected_drivers(woken: ChangeReceiver, context: Arc<Context>) -> impl Stream<Item = ObjectRef<Watched>> {
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
