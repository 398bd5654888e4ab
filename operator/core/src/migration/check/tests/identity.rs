// SPDX-License-Identifier: Apache-2.0

use super::*;

const PROJECT: (AdoptionFindingReason, &str) = (AdoptionFindingReason::OtherProject, "the project of the login");
const USER: (AdoptionFindingReason, &str) = (AdoptionFindingReason::ConfigurationKey, "the user of the login");
const KIND: (AdoptionFindingReason, &str) = (AdoptionFindingReason::ConfigurationKey, "the login");
const UNKNOWN_PROJECT: (AdoptionFindingReason, &str) = (AdoptionFindingReason::NotChecked, "the project of the login");
const UNKNOWN_USER: (AdoptionFindingReason, &str) = (AdoptionFindingReason::NotChecked, "the user of the login");

const BY_ID: &str = "user-id=u\npassword=hunter2\ntenant-id=p";
const BY_NAME: &str = "username=n\nuser-domain-name=D\npassword=hunter2\ntenant-name=t\ntenant-domain-name=D";
const CREDENTIAL: &str = "application-credential-id=i\napplication-credential-secret=hunter2";
const NAMED_CREDENTIAL: &str = "application-credential-name=c\napplication-credential-secret=hunter2\nuser-id=u";
const TRUST: &str = "trust-id=t\ntrustee-id=u\ntrustee-password=hunter2";

fn compare_logins(old: &str, new: &str) -> Vec<AdoptionFinding> {
    let mk_conf = |login: &str| format!("[Global]\nauth-url=https://k\n{login}\n");
    compare(&mk_spec(), mk_configuration(&[], &mk_conf(old)), Some(&mk_conf(new)))
}

#[rstest]
#[case::same_ids(BY_ID, BY_ID, &[])]
#[case::another_password(BY_ID, "user-id=u\npassword=x\ntenant-id=p", &[])]
#[case::another_project(BY_ID, "user-id=u\npassword=x\ntenant-id=q", &[PROJECT])]
#[case::another_user(BY_ID, "user-id=v\npassword=x\ntenant-id=p", &[USER])]
#[case::both(BY_ID, "user-id=v\npassword=x\ntenant-id=q", &[PROJECT, USER])]
#[case::ids_and_names(BY_ID, BY_NAME, &[UNKNOWN_PROJECT, UNKNOWN_USER])]
#[case::same_names(BY_NAME, BY_NAME, &[])]
#[case::domain_for_both(BY_NAME, "username=n\npassword=x\ntenant-name=t\ndomain-name=D", &[])]
#[case::another_name(BY_NAME, "username=n\npassword=x\ntenant-name=x\ndomain-name=D", &[PROJECT])]
#[case::another_domain(BY_NAME, "username=n\npassword=x\ntenant-name=t\ndomain-name=E", &[PROJECT, USER])]
#[case::case_of_letters(BY_NAME, "username=n\npassword=x\ntenant-name=T\ndomain-name=D", &[UNKNOWN_PROJECT])]
#[case::domain_by_id(BY_NAME, "username=n\npassword=x\ntenant-name=t\ndomain-id=d", &[UNKNOWN_PROJECT, UNKNOWN_USER])]
#[case::same_credential(CREDENTIAL, "application-credential-id=i\napplication-credential-secret=x", &[])]
#[case::another_credential(CREDENTIAL, "application-credential-id=j\napplication-credential-secret=x", &[UNKNOWN_PROJECT])]
#[case::named_credential(NAMED_CREDENTIAL, NAMED_CREDENTIAL, &[])]
#[case::credential_by_name(CREDENTIAL, NAMED_CREDENTIAL, &[UNKNOWN_PROJECT])]
#[case::credential_for_password(BY_ID, CREDENTIAL, &[KIND])]
#[case::token_for_password(BY_ID, "token=x\ntenant-id=p", &[KIND])]
#[case::token_of_another_project(BY_ID, "token=x\ntenant-id=q", &[KIND, PROJECT])]
#[case::same_trust(TRUST, TRUST, &[])]
#[case::another_trust(TRUST, "trust-id=s\ntrustee-id=u\ntrustee-password=x", &[UNKNOWN_PROJECT])]
#[case::another_trustee(TRUST, "trust-id=t\ntrustee-id=v\ntrustee-password=x", &[USER])]
fn logins_are_compared_by_project_and_user(
    #[case] old: &str,
    #[case] new: &str,
    #[case] expected: &[(AdoptionFindingReason, &str)],
) {
    let found = compare_logins(old, new);
    assert_eq!(shown(&found), expected, "{found:?}");
    assert!(!format!("{found:?}").contains("hunter2"));
}

#[test]
fn another_project_is_named_and_cannot_be_accepted() {
    let found = compare_logins(BY_ID, "user-id=u\npassword=x\ntenant-id=q");
    assert!(!found[0].reason.can_be_accepted() && !found[0].reason.is_final());
    for part in ["the id \"p\"", "the id \"q\"", "not find the existing volumes"] {
        assert!(found[0].message.contains(part), "{found:?}");
    }
    assert!(
        found[0].remedy.contains("spec.clouds[default].credentialsSecretRef"),
        "{found:?}"
    );
}

#[test]
fn unknown_project_of_another_kind_is_reported() {
    let found = compare_logins(BY_ID, CREDENTIAL);
    assert!(found[0].message.contains("same project is not known"), "{found:?}");
    let found = compare_logins(
        CREDENTIAL,
        "application-credential-id=j\napplication-credential-secret=x",
    );
    assert!(found[0].message.contains("\"i\" and with the id \"j\""), "{found:?}");
}

#[rstest]
#[case::without_project(
    "user-id=u\npassword=hunter2",
    "tenant-name is missing",
    "Volumes belong to a project"
)]
#[case::two_logins(
    "user-id=u\npassword=hunter2\ntenant-id=p\napplication-credential-id=i",
    "password beside application-credential-id",
    "Keep the keys of one login"
)]
fn refused_login_is_a_finding(#[case] old: &str, #[case] problem: &str, #[case] remedy: &str) {
    let found = compare_logins(old, BY_ID);
    assert_eq!(shown(&found), [KIND]);
    assert!(found[0].message.contains(problem), "{found:?}");
    assert!(found[0].remedy.starts_with(remedy), "{found:?}");
    assert!(!format!("{found:?}").contains("hunter2"));
}

#[test]
fn named_entry_of_clouds_yaml_replaces_login() {
    let yaml = "clouds: {c: {auth: {auth_url: 'https://k', user_id: u, password: x, project_id: p}}}";
    let own = "[Global]\nauth-url=https://k\nuser-id=v\npassword=x\ntenant-id=q\nuse-clouds=true\n";
    let new = format!("[Global]\nauth-url=https://k\n{BY_ID}\n");
    for (entry, expected) in [("cloud=c\n", &[][..]), ("", &[PROJECT, USER][..])] {
        let mut old = mk_configuration(&[], &format!("{own}{entry}"));
        assert_eq!(compare(&mk_spec(), old.clone(), Some(&new)).len(), 0);
        let file = old.clouds_files().remove(0);
        old.add_clouds_yaml(&file, "c.yaml", &yaml.to_owned().into())
            .expect("a clouds.yaml");
        assert_eq!(shown(&compare(&mk_spec(), old, Some(&new))), expected);
    }
}

#[test]
fn unread_file_hides_login() {
    let text = ConfigurationText {
        place: OLD_SECRET.to_owned(),
        text: format!("[Global]\nauth-url=https://k\n{BY_ID}\n").into(),
    };
    let old = OldConfiguration::read(&mk_container(PROGRAM, &[]), &[text], true, &mut Vec::new());
    let new = "[Global]\nauth-url=https://k\nuser-id=u\npassword=x\ntenant-id=q\n";
    assert_eq!(compare(&mk_spec(), old, Some(new)), []);
}

#[test]
fn addresses_are_shown_without_credentials() {
    let old = "[Global]\nauth-url=https://u:hunter2@one/v3?x=hunter2\nblock-storage-endpoint-override=https://u:hunter2@c/v3\n";
    let new = format!("[Global]\nauth-url=https://two\n{BY_ID}\n");
    let found = compare(&mk_spec(), mk_configuration(&[], old), Some(&new));
    let subjects: Vec<&str> = found.iter().map(|finding| finding.subject.as_str()).collect();
    assert_eq!(
        subjects,
        ["[Global] auth-url", "[Global] block-storage-endpoint-override"]
    );
    let text = format!("{found:?}");
    assert!(
        text.contains("https://one") && text.contains("https://c/v3") && !text.contains("hunter2"),
        "{text}"
    );
}
