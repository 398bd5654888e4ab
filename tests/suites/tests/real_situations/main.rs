// SPDX-License-Identifier: Apache-2.0
//! Tests of our driver with real services in situations that csi-sanity does not cover: other logins, stopped or locked
//! servers, a volume on two servers, a type on another backend.
//!
//! The driver's own tests with the simulator cover situations that this cloud does not support:
//!
//! - Shelved servers, which need an image service.
//! - Resizes and migrations of servers, because there is one compute host.
//! - Retypes that migrate a volume in use, because loop devices cannot be mirrored.
//! - A Keystone with mutual TLS.

mod calls;
mod cloud;

use anyhow::{Context as _, Result, ensure};
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use harness::workspace_root;
use serde_json::{Value, json};
use suites::cloud::OtherLogin;
use suites::drivers::{Ours, Role};
use suites::expect::{expect_equal, expect_parts};
use suites::keystone::Keystone;
use suites::lab::in_lab;
use suites::life::Life;
use suites::openstack::keys;
use suites::real_cloud::{RealCloud, with_driver};
use tonic::{Code, Status};

use calls::{Calls, several, single};
use cloud::{attached, reach};

#[test]
fn all_login_methods_run_volume_lifecycle() {
    in_lab(async |lab| {
        let cloud = RealCloud::start(&lab).await?;
        let node = Ours::new(Role::Node).start(&lab, &cloud).await?;
        let member = keys(cloud.member_conf())?;
        let keystone = Keystone::login(cloud.member_conf()).await?;
        let (trust, trustee) = trust(&cloud, &keystone).await?;
        let trustee_password = &keys(cloud.trustee_conf())?["password"];
        let global = format!(
            "[Global]\nauth-url = {}\nregion = {}\n",
            cloud.auth_url(),
            member["region"]
        );
        let (token, project) = (keystone.token(), keystone.id("project")?);
        for (way, text) in [
            ("password", std::fs::read_to_string(cloud.member_conf())?),
            ("token", format!("{global}token = {token}\ntenant-id = {project}\n")),
            (
                "trust",
                format!("{global}trust-id = {trust}\ntrustee-id = {trustee}\ntrustee-password = {trustee_password}\n"),
            ),
        ] {
            let conf = lab.path(&format!("{way}.conf"));
            std::fs::write(&conf, text)?;
            let controller = Ours::new(Role::Controller).start(&lab, &OtherLogin { conf }).await?;
            let name = format!("pvc-{way}");
            let life = Life::mounted(&lab, controller.channel(), node.channel(), &name, "ext4")?;
            let walk = async {
                let volume = life.create().await?;
                let context = life.attach(&volume).await?;
                life.stage(&volume, &context).await?;
                life.unstage(&volume).await?;
                life.detach(&volume).await?;
                life.delete(&volume).await
            };
            walk.await.with_context(|| format!("by {way}"))?;
            controller.stop().await?;
        }
        node.stop().await?;
        cloud.stop().await
    });
}

#[test]
fn stopped_server_works_and_locked_is_reported() {
    with_driver(Role::Both, async |lab, cloud, driver| {
        let life = Life::block(lab, driver.channel(), driver.channel(), "pvc-states")?;
        let volume = life.create().await?;
        let api = cloud.api();
        let server = cloud.servers().first().context("no server")?.id.clone();
        let calls = Calls::from_channel(driver.channel());

        api.server_action(&server, &json!({ "os-stop": null })).await?;
        reach(api, &server, "SHUTOFF").await?;
        for _ in 0..2 {
            calls.publish(&volume.volume_id, &server, single()).await?;
        }
        for _ in 0..2 {
            calls.unpublish(&volume.volume_id, &server).await?;
        }
        calls.publish(&volume.volume_id, &server, single()).await?;
        api.server_action(&server, &json!({ "os-start": null })).await?;
        reach(api, &server, "ACTIVE").await?;

        api.server_action(&server, &json!({ "lock": { "locked_reason": "a test" } }))
            .await?;
        let refusal = calls.unpublish(&volume.volume_id, &server).await;
        let refusal = refusal.err().context("a locked server gave it")?;
        is_locked(&refusal, &server)?;
        api.server_action(&server, &json!({ "unlock": null })).await?;
        calls.unpublish(&volume.volume_id, &server).await?;
        api.server_action(&server, &json!({ "lock": {} })).await?;
        let refusal = calls.publish(&volume.volume_id, &server, single()).await;
        let refusal = refusal.err().context("a locked server took it")?;
        is_locked(&refusal, &server)?;
        api.server_action(&server, &json!({ "unlock": null })).await?;
        // The refused calls had no side effect.
        calls.publish(&volume.volume_id, &server, single()).await?;
        calls.unpublish(&volume.volume_id, &server).await?;
        calls.delete(&volume.volume_id).await?;
        Ok(())
    });
}

#[test]
fn only_multiattach_volume_attaches_to_two_servers() {
    with_driver(Role::Controller, async |_, cloud, driver| {
        let calls = Calls::from_channel(driver.channel());
        let [one, two] = cloud.servers() else {
            anyhow::bail!("not two servers")
        };
        let shared = calls.create("pvc-shared", "multi", Mode::MultiNodeMultiWriter).await?;
        for server in [one, two, one] {
            calls.publish(&shared, &server.id, several()).await?;
        }
        ensure!(attached(cloud.api(), &shared).await? == 2);
        calls.unpublish(&shared, &one.id).await?;
        let servers = attached(cloud.api(), &shared).await?;
        expect_equal("number of servers", &servers, &1)?;
        // A single-node access mode means one node, even if the type supports multiattach.
        let refusal = calls.publish(&shared, &one.id, single()).await;
        let refusal = refusal.err().context("it is on another server")?;
        expect_equal(refusal.message(), &refusal.code(), &Code::FailedPrecondition)?;
        expect_parts(refusal.message(), &[&two.id])?;
        calls.unpublish(&shared, "").await?;
        ensure!(attached(cloud.api(), &shared).await? == 0);
        calls.delete(&shared).await?;

        let refusal = calls.create("pvc-single", "fast", Mode::MultiNodeMultiWriter).await;
        let refusal = refusal.err().context("the type is for one server")?;
        ensure!(refusal.code() == Code::InvalidArgument, "{refusal}");
        Ok(())
    });
}

#[test]
fn retype_to_other_backend_migrates_data() {
    with_driver(Role::Both, async |lab, cloud, driver| {
        let life = Life::mounted(lab, driver.channel(), driver.channel(), "pvc-moves", "ext4")?;
        let calls = Calls::from_channel(driver.channel());
        let volume = life.create().await?;
        for is_first in [true, false] {
            life.bring_up(&volume).await?;
            if is_first {
                life.write_file(lab).await?;
            }
            life.expect_file(lab).await?;
            life.take_down(&volume).await?;
            // The second time, the volume already has the type, which is not a change.
            let refusal = calls.modify(&volume.volume_id, &[("type", "other")]).await;
            if is_first {
                let refusal = refusal.err().context("it cannot stay on its backend")?;
                ensure!(refusal.code() == Code::InvalidArgument, "{refusal}");
            } else {
                refusal.context("it has the type")?;
            }
            let parameters = [("type", "other"), ("migration-policy", "on-demand")];
            calls.modify(&volume.volume_id, &parameters).await?;
            let volume_type = cloud.api().volume(&volume.volume_id).await?["volume_type"].clone();
            ensure!(volume_type == "other", "its type is {volume_type}");
        }
        life.delete(&volume).await
    });
}

#[test]
fn detach_removes_read_only_metadata() {
    with_driver(Role::Controller, async |_, cloud, driver| {
        let calls = Calls::from_channel(driver.channel());
        let server = cloud.servers().first().context("no server")?.id.clone();
        let volume = calls.create("pvc-read", "fast", Mode::SingleNodeWriter).await?;
        let before = cloud.api().volume(&volume).await?["metadata"].clone();
        calls.publish_as(&volume, &server, single(), true).await?;
        let marked = cloud.api().volume(&volume).await?["metadata"].clone();
        ensure!(marked.to_string().contains(&server), "no mark in {marked}");
        calls.unpublish(&volume, &server).await?;
        let after = cloud.api().volume(&volume).await?["metadata"].clone();
        ensure!(after == before, "{before} before, {after} after");
        calls.delete(&volume).await?;
        Ok(())
    });
}

#[test]
fn missing_permission_is_reported() {
    in_lab(async |lab| {
        let cloud = RealCloud::start(&lab).await?;
        let member = keys(cloud.member_conf())?;
        let keystone = Keystone::login(cloud.member_conf()).await?;
        let path = workspace_root().join("config/openstack/access-rules.json");
        let mut rules: Vec<Value> = serde_json::from_slice(&std::fs::read(path)?)?;
        rules.retain(|rule| !(rule["method"] == "DELETE" && rule["path"] == "/v3/*/volumes/*"));
        let (id, secret) = keystone.application_credential("lacks-one", Some(&rules)).await?;
        let conf = lab.path("lacks-one.conf");
        let text = format!(
            "[Global]\nauth-url = {}\nregion = {}\napplication-credential-id = {id}\napplication-credential-secret = {secret}\n",
            cloud.auth_url(),
            member["region"]
        );
        std::fs::write(&conf, text)?;
        let driver = Ours::new(Role::Controller).start(&lab, &OtherLogin { conf }).await?;
        let calls = Calls::from_channel(driver.channel());
        let volume = calls.create("pvc-lacks-one", "fast", Mode::SingleNodeWriter).await?;
        let refusal = calls.delete(&volume).await.err();
        let refusal = refusal.context("a deletion without the right to it")?;
        let request = format!("DELETE volumes/{volume}");
        expect_parts(refusal.message(), &["access rules", &request])?;
        println!("{}: {}", refusal.code(), refusal.message());
        driver.stop().await?;

        let driver = Ours::new(Role::Controller).start(&lab, &cloud).await?;
        Calls::from_channel(driver.channel()).delete(&volume).await?;
        driver.stop().await?;
        cloud.stop().await
    });
}

/// Delegates the member's role in its project to the trustee; returns the ids of trust and trustee.
async fn trust(cloud: &RealCloud, member: &Keystone) -> Result<(String, String)> {
    let trustee = Keystone::login_unscoped(cloud.trustee_conf()).await?;
    let trustee = trustee.id("user")?.to_owned();
    let body = json!({ "trust": {
        "trustor_user_id": member.id("user")?, "trustee_user_id": trustee, "project_id": member.id("project")?,
        "impersonation": true, "roles": [{ "name": "member" }],
    }});
    let made = member.post("OS-TRUST/trusts", &body).await?;
    Ok((made["trust"]["id"].as_str().context("no trust")?.to_owned(), trustee))
}

/// Checks that the error is retryable and names the server, the lock and the remedy.
fn is_locked(refusal: &Status, server: &str) -> Result<()> {
    println!("{refusal}");
    expect_equal("code", &refusal.code(), &Code::Aborted)?;
    expect_parts(refusal.message(), &[server, "locked", "unlock"])
}
