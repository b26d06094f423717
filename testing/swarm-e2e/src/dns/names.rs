//! The addresses of names, as Kubernetes specifies them. The name of a Service has the address of
//! the Service, and the name of a headless Service has the addresses of its ready pods. Each of
//! these pods with a host name has a name, too.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use anyhow::Result;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt as _;
use kube::runtime::reflector::{ObjectRef, Store};

/// The label of an `EndpointSlice` with the name of its Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// All names of the cluster.
pub(super) struct Names {
    pub(super) services: Store<Service>,
    pub(super) slices: Store<EndpointSlice>,
}

/// The result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The name exists, and has these addresses, or none.
    Addresses(BTreeSet<Ipv4Addr>),
    /// The name does not exist.
    Missing,
}

impl Names {
    /// Returns when all names are known.
    pub(super) async fn filled(&self) -> Result<()> {
        self.services.wait_until_ready().await?;
        Ok(self.slices.wait_until_ready().await?)
    }

    /// Looks up a name, which is given by its parts in lower case.
    pub(super) fn look_up(&self, name: &[&str]) -> Found {
        let exists = || Found::Addresses(BTreeSet::new());
        match name {
            ["cluster", "local"] | ["svc", "cluster", "local"] => exists(),
            [namespace, "svc", "cluster", "local"] if self.has_services(namespace) => exists(),
            [service, namespace, "svc", "cluster", "local"] => self.service(service, namespace),
            [host, service, namespace, "svc", "cluster", "local"] => {
                self.host(host, service, namespace)
            }
            _ => Found::Missing,
        }
    }

    fn has_services(&self, namespace: &str) -> bool {
        self.services.find(|it| it.namespace().as_deref() == Some(namespace)).is_some()
    }

    fn service(&self, name: &str, namespace: &str) -> Found {
        let Some(service) = self.services.get(&ObjectRef::new(name).within(namespace)) else {
            return Found::Missing;
        };
        if is_headless(&service) {
            return self.ready(name, namespace, |_| true);
        }
        let own = service.spec.iter().filter_map(|spec| spec.cluster_ip.as_ref());
        Found::Addresses(own.filter_map(|it| address(it)).collect())
    }

    fn host(&self, host: &str, service: &str, namespace: &str) -> Found {
        let found = self.services.get(&ObjectRef::new(service).within(namespace));
        if !found.is_some_and(|found| is_headless(&found)) {
            return Found::Missing;
        }
        self.ready(service, namespace, |endpoint| endpoint.hostname.as_deref() == Some(host))
    }

    /// The addresses of ready endpoints. Without any the name does not exist, as Kubernetes
    /// specifies.
    fn ready(&self, service: &str, namespace: &str, is_asked: impl Fn(&Endpoint) -> bool) -> Found {
        let mut found = BTreeSet::new();
        for slice in self.slices.state() {
            let of = slice.labels().get(SERVICE_LABEL).map(String::as_str);
            if of != Some(service) || slice.namespace().as_deref() != Some(namespace) {
                continue;
            }
            let asked = slice.endpoints.iter().filter(|it| is_ready(it) && is_asked(it));
            found.extend(asked.flat_map(|it| &it.addresses).filter_map(|it| address(it)));
        }
        if found.is_empty() { Found::Missing } else { Found::Addresses(found) }
    }
}

fn address(text: &str) -> Option<Ipv4Addr> {
    text.parse().ok()
}

fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.cluster_ip.as_deref() == Some("None"))
}

/// Whether an endpoint is ready. An endpoint without this condition counts as ready.
fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|it| it.ready).unwrap_or(true)
}

#[cfg(test)]
pub(super) mod tests {
    use kube::runtime::reflector;
    use kube::runtime::watcher::Event;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn store<K>(objects: Vec<Value>) -> Store<K>
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + 'static,
    {
        let (store, mut writer) = reflector::store();
        for object in objects {
            writer.apply_watcher_event(&Event::Apply(serde_json::from_value(object).unwrap()));
        }
        store
    }

    /// Names in namespace `a`: `web` with an address, `pods` with pod 0 ready and pod 1 not, `many`
    /// with 200 pods, and `none` without pods.
    pub(in super::super) fn names() -> Names {
        let service = |name: &str, address: &str| json!({"metadata": {"name": name, "namespace": "a"}, "spec": {"clusterIP": address}});
        let slice = |service: &str, endpoints: Vec<Value>| {
            let labels = json!({SERVICE_LABEL: service});
            let metadata = json!({"name": service, "namespace": "a", "labels": labels});
            json!({"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints})
        };
        let pod = |number: u8, ready: bool| {
            json!({"addresses": [format!("10.88.1.{number}")],
                "hostname": format!("pods-{number}"), "conditions": {"ready": ready}})
        };
        let services = [("web", "10.96.0.7"), ("pods", "None"), ("many", "None"), ("none", "None")];
        Names {
            services: store(services.map(|(name, address)| service(name, address)).to_vec()),
            slices: store(vec![
                slice("pods", vec![pod(0, true), pod(1, false)]),
                slice("many", (0..200).map(|number| pod(number, true)).collect()),
                slice("web", vec![pod(5, true)]),
            ]),
        }
    }

    fn found(name: &str) -> Option<Vec<String>> {
        match names().look_up(&name.split('.').collect::<Vec<_>>()) {
            Found::Missing => None,
            Found::Addresses(found) => Some(found.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn a_service_has_its_address_and_a_headless_one_those_of_its_ready_pods() {
        assert_eq!(found("web.a.svc.cluster.local"), Some(vec!["10.96.0.7".into()]));
        assert_eq!(found("pods.a.svc.cluster.local"), Some(vec!["10.88.1.0".into()]));
        assert_eq!(found("many.a.svc.cluster.local").map(|all| all.len()), Some(200));
        assert_eq!(found("none.a.svc.cluster.local"), None);
    }

    #[test]
    fn a_ready_pod_of_a_headless_service_is_found_by_its_host_name() {
        assert_eq!(found("pods-0.pods.a.svc.cluster.local"), Some(vec!["10.88.1.0".into()]));
        assert_eq!(found("pods-1.pods.a.svc.cluster.local"), None);
        assert_eq!(found("pods-5.web.a.svc.cluster.local"), None);
    }

    #[test]
    fn what_lies_above_a_name_exists_and_what_search_paths_make_of_it_does_not() {
        for parent in ["cluster.local", "svc.cluster.local", "a.svc.cluster.local"] {
            assert_eq!(found(parent), Some(vec![]), "{parent}");
        }
        let made_up = "web.a.svc.cluster.local.a.svc.cluster.local";
        for missing in [made_up, "web.b.svc.cluster.local", "b.svc.cluster.local", "web", "web.a"] {
            assert_eq!(found(missing), None, "{missing}");
        }
    }
}
