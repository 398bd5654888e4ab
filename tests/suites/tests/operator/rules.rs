// SPDX-License-Identifier: Apache-2.0
//! Tests the CRD's validation rules on the API server, with the table of the crate's offline tests.

use anyhow::{Result, ensure};
use reqwest::Method;
use serde_json::Value;

use crate::api::Refusal;
use crate::cases::{cases, smallest, updates, with};
use crate::world::World;

const DRIVERS: &str = "/apis/csi.openstack.org/v1beta1/cindercsidrivers";

pub(crate) async fn api_server_enforces_validation_rules(world: &World) -> Result<()> {
    let mut wrong = Vec::new();
    let dry = format!("{DRIVERS}?dryRun=All");
    let request = async |method, path: &str, object: &Value| {
        let body = Some(("application/json", object));
        world.api.request(method, path, body).await
    };
    let first = request(Method::POST, &dry, &smallest()).await?;
    check_answer("the smallest object", &first, "", &mut wrong);
    for case in cases() {
        let object = with(case.pointer, case.value.clone());
        let answer = request(Method::POST, &dry, &object).await?;
        check_answer(case.name, &answer, case.refusal, &mut wrong);
    }
    for case in updates() {
        let old = with(case.pointer, case.old.clone());
        world.api.create(DRIVERS, &old).await?;
        let path = format!("{DRIVERS}/{}", old["metadata"]["name"].as_str().unwrap_or_default());
        let mut new = with(case.pointer, case.new.clone());
        let current = world.api.get(&path).await?;
        new["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
        let answer = request(Method::PUT, &path, &new).await?;
        check_answer(case.name, &answer, case.refusal, &mut wrong);
        world.api.delete(&path).await?;
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n    "));
    Ok(())
}

fn check_answer(name: &str, answer: &Result<Value, Refusal>, refusal: &str, wrong: &mut Vec<String>) {
    match answer {
        Ok(_) if refusal.is_empty() => {}
        Ok(_) => wrong.push(format!("{name} was accepted")),
        Err(said) if !refusal.is_empty() && said.message.contains(refusal) => {}
        Err(said) => wrong.push(format!("{name}: {} {}", said.status, said.message)),
    }
}
