// SPDX-License-Identifier: Apache-2.0
//! Requests for objects, of which one that does not decode is an error about itself.

use std::fmt::Debug;

use cinder_operator_core::cluster::{GuardedObject, UndecodableObject};
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, ObjectList, Patch, PatchParams, PostParams},
    core::DynamicResourceScope,
};
use serde::{Serialize, de::DeserializeOwned, de::Error as _};

/// [`Api`] with every object guarded. All requests of this crate for objects that other clients write use it.
#[derive(Debug, Clone)]
pub(crate) struct GuardedApi<K>(Api<GuardedObject<K>>);

impl<K: Resource> GuardedApi<K> {
    pub(crate) fn all(client: Client) -> Self
    where
        K::DynamicType: Default,
    {
        Self(Api::all(client))
    }

    pub(crate) fn all_with(client: Client, resource: &K::DynamicType) -> Self {
        Self(Api::all_with(client, resource))
    }

    pub(crate) fn namespaced(client: Client, namespace: &str) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Self(Api::namespaced(client, namespace))
    }

    pub(crate) fn namespaced_with(client: Client, namespace: &str, resource: &K::DynamicType) -> Self
    where
        K: Resource<Scope = DynamicResourceScope>,
    {
        Self(Api::namespaced_with(client, namespace, resource))
    }

    /// For a watch.
    pub(crate) fn into_inner(self) -> Api<GuardedObject<K>> {
        self.0
    }
}

impl<K: Clone + Debug + DeserializeOwned> GuardedApi<K> {
    /// Lists the objects, with the known part of each object that does not decode.
    pub(crate) async fn list_guarded(&self, params: &ListParams) -> kube::Result<ObjectList<GuardedObject<K>>> {
        self.0.list(params).await
    }

    /// Lists the objects. One that does not decode is an error that names it.
    pub(crate) async fn list(&self, params: &ListParams) -> kube::Result<Vec<K>> {
        let list = self.list_guarded(params).await?;
        list.items.into_iter().map(unguard).collect()
    }

    /// Lists the objects that decode. Adds a note about each of the others, and about a list that has more objects than its limit.
    pub(crate) async fn list_readable(&self, params: &ListParams, notes: &mut Vec<String>) -> kube::Result<Vec<K>> {
        let list = self.list_guarded(params).await?;
        if list.metadata.continue_.is_some_and(|token| !token.is_empty()) {
            notes.push(format!("only the first {} objects are included", list.items.len()));
        }
        let readable = list
            .items
            .into_iter()
            .filter_map(|object| object.0.map_err(|undecodable| notes.push(undecodable.to_string())).ok());
        Ok(readable.collect())
    }

    pub(crate) async fn get(&self, name: &str) -> kube::Result<K> {
        self.0.get(name).await.and_then(unguard)
    }

    pub(crate) async fn get_opt(&self, name: &str) -> kube::Result<Option<K>> {
        self.0.get_opt(name).await?.map(unguard).transpose()
    }

    pub(crate) async fn patch<P: Serialize + Debug>(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> kube::Result<K> {
        self.0.patch(name, params, patch).await.and_then(unguard)
    }

    pub(crate) async fn patch_status<P: Serialize + Debug>(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> kube::Result<()> {
        self.0.patch_status(name, params, patch).await.map(drop)
    }

    pub(crate) async fn create(&self, params: &PostParams, object: &K) -> kube::Result<K>
    where
        K: Serialize,
    {
        let object = GuardedObject(Ok(object.clone()));
        self.0.create(params, &object).await.and_then(unguard)
    }

    pub(crate) async fn replace(&self, name: &str, params: &PostParams, object: &K) -> kube::Result<K>
    where
        K: Serialize,
    {
        let object = GuardedObject(Ok(object.clone()));
        self.0.replace(name, params, &object).await.and_then(unguard)
    }

    pub(crate) async fn delete(&self, name: &str, params: &DeleteParams) -> kube::Result<()> {
        self.0.delete(name, params).await.map(drop)
    }
}

fn unguard<K>(object: GuardedObject<K>) -> kube::Result<K> {
    object.0.map_err(|undecodable| undecodable_error(&undecodable))
}

/// The error about an object that does not decode.
pub(crate) fn undecodable_error(undecodable: &UndecodableObject) -> kube::Error {
    kube::Error::SerdeError(serde_json::Error::custom(undecodable))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    /// Files with requests of kube's own `Api`: for objects that only this program writes, and for logs.
    const EXCEPTIONS: [&str; 4] = [
        "commands/plugin/bundle.rs",
        "events.rs",
        "kubernetes/guarded_api.rs",
        "scrape/access.rs",
    ];

    fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect(&path, files);
            } else {
                files.push(path);
            }
        }
    }

    #[test]
    fn other_modules_guard_their_requests() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut files = Vec::new();
        collect(&source, &mut files);
        assert!(files.len() > 50, "{} files", files.len());
        for path in files {
            let name = path
                .strip_prefix(&source)
                .expect("below the folder")
                .to_string_lossy()
                .into_owned();
            if name.contains("tests") || EXCEPTIONS.contains(&name.as_str()) {
                continue;
            }
            let text = fs::read_to_string(&path).expect("text");
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            for part in ["Api<", "Api::"] {
                let whole = code.matches(part).count();
                let guarded = code.matches(&format!("Guarded{part}")).count();
                // The enum of APIs that a cluster may lack.
                let others = code.matches(&format!("Optional{part}")).count();
                assert_eq!(whole, guarded + others, "{name}: use GuardedApi");
            }
        }
    }
}
