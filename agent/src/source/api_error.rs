//! A failed request to the Kubernetes API: what failed, why, and the remedy.

use std::borrow::Cow;
use std::error::Error as _;
use std::io;
use std::time::Duration;

use kube::core::Status;

use super::bounded;
use crate::error::{HasRemedy, Remedy, chain};
use crate::rights::Right;

/// Longest problem or remedy, bytes: the text comes from an API server.
const MAX_TEXT: usize = 512;

/// Purpose of a request. An error names the purpose; after a 403 the remedy names the RBAC rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::source) struct Purpose {
    /// After "cannot": `list and watch the pods of this node`.
    pub what: Cow<'static, str>,
    pub right: &'static Right,
}

/// Why a request failed, for counters and for the decision on the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureReason {
    /// 410 Gone: the API server no longer has the changes since this resourceVersion.
    Expired,
    /// A 504 that says so: the API server does not have this resourceVersion yet.
    TooNew,
    /// 403.
    Forbidden,
    /// 401.
    Unauthorized,
    /// Any other status of the API server.
    Status,
    /// No connection, or the connection failed.
    Connection,
    /// No answer in time.
    Timeout,
    /// An answer that cannot be decoded.
    Undecodable,
    /// A watch that ended immediately, without an event.
    Closed,
    /// A watch without event or bookmark for longer than a live connection allows.
    Stalled,
}

impl FailureReason {
    pub const ALL: [FailureReason; 10] = [
        FailureReason::Expired,
        FailureReason::TooNew,
        FailureReason::Forbidden,
        FailureReason::Unauthorized,
        FailureReason::Status,
        FailureReason::Connection,
        FailureReason::Timeout,
        FailureReason::Undecodable,
        FailureReason::Closed,
        FailureReason::Stalled,
    ];

    /// Value of the label `reason`.
    pub const fn name(self) -> &'static str {
        match self {
            FailureReason::Expired => "expired",
            FailureReason::TooNew => "too_new",
            FailureReason::Forbidden => "forbidden",
            FailureReason::Unauthorized => "unauthorized",
            FailureReason::Status => "status",
            FailureReason::Connection => "connection",
            FailureReason::Timeout => "timeout",
            FailureReason::Undecodable => "undecodable",
            FailureReason::Closed => "closed",
            FailureReason::Stalled => "stalled",
        }
    }
}

/// Display is the problem alone; [`HasRemedy::remedy`] has the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {what}: {problem}")]
pub struct ApiError {
    what: Cow<'static, str>,
    problem: String,
    remedy: Option<String>,
    reason: FailureReason,
}

impl ApiError {
    pub(in crate::source) fn new(purpose: &Purpose, reason: FailureReason, problem: &str) -> ApiError {
        ApiError {
            what: purpose.what.clone(),
            problem: bounded(problem, MAX_TEXT),
            remedy: None,
            reason,
        }
    }

    pub(in crate::source) fn of(purpose: &Purpose, error: &kube::Error) -> ApiError {
        let (reason, problem, remedy) = explain(purpose, error);
        ApiError {
            remedy: remedy.map(|remedy| bounded(&remedy, MAX_TEXT)),
            ..ApiError::new(purpose, reason, &problem)
        }
    }

    pub(in crate::source) fn timeout(purpose: &Purpose, limit: Duration) -> ApiError {
        let problem = format!("the API server did not answer within {limit:?}");
        ApiError::new(purpose, FailureReason::Timeout, &problem)
    }

    pub fn reason(&self) -> FailureReason {
        self.reason
    }
}

impl HasRemedy for ApiError {
    fn remedy(&self) -> Option<Remedy> {
        self.remedy.clone().map(Remedy::Owned)
    }
}

fn explain(purpose: &Purpose, error: &kube::Error) -> (FailureReason, String, Option<String>) {
    match error {
        kube::Error::Api(status) if status.is_forbidden() => (
            FailureReason::Forbidden,
            format!("RBAC forbids it ({})", status.message),
            Some(purpose.right.remedy()),
        ),
        kube::Error::Api(status) if status.code == 401 => (
            FailureReason::Unauthorized,
            "the API server does not accept epitaph's credentials (401 Unauthorized)".to_owned(),
            Some("check the token: it has expired, or belongs to another cluster or to a deleted ServiceAccount".to_owned()),
        ),
        kube::Error::Api(status) => {
            let reason = match status.code {
                410 => FailureReason::Expired,
                _ if is_too_new(status) => FailureReason::TooNew,
                _ if status.reason == "Expired" => FailureReason::Expired,
                _ => FailureReason::Status,
            };
            let problem = format!("the API server answered {} {}", status.code, status.message);
            (reason, problem, None)
        }
        kube::Error::SerdeError(error) => {
            let problem = format!("the answer cannot be decoded: {error}");
            (FailureReason::Undecodable, problem, None)
        }
        other => {
            let problem = chain(other);
            let remedy = if is_refused(other) {
                Some("check that the API server is running and that the address is right: nobody listens there")
            } else if problem.contains("UnknownIssuer") || problem.contains("BadSignature") {
                Some(OTHER_AUTHORITY)
            } else if problem.contains("NotValidForName") {
                Some(OTHER_NAME)
            } else {
                None
            };
            (FailureReason::Connection, problem, remedy.map(str::to_owned))
        }
    }
}

const OTHER_AUTHORITY: &str = if cfg!(feature = "kubeconfig") {
    "check certificate-authority in the kubeconfig, or the ServiceAccount's ca.crt: the API server's certificate is signed by a CA that we \
     were not given"
} else {
    "check the ServiceAccount's ca.crt: the API server's certificate is signed by a CA that we were not given"
};

const OTHER_NAME: &str = if cfg!(feature = "kubeconfig") {
    "check the server's address in the kubeconfig, or set tls-server-name: the certificate is for another name"
} else {
    "check KUBERNETES_SERVICE_HOST of the pod: the API server's certificate is for another name"
};

/// Any other 504 is a proxy's or a slow API server's, and a list would fail as well.
fn is_too_new(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "ResourceVersionTooLarge") || status.message.contains("Too large resource version")
}

fn is_refused(error: &kube::Error) -> bool {
    std::iter::successors(error.source(), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::line;

    const PODS: Purpose = Purpose {
        what: Cow::Borrowed("list and watch the pods of this node"),
        right: &crate::rights::AGENT_PODS,
    };

    fn status(code: u16, reason: &str, message: &str) -> ApiError {
        let status = Status::failure(message, reason).with_code(code);
        ApiError::of(&PODS, &kube::Error::Api(status.boxed()))
    }

    #[test]
    fn a_403_has_the_missing_rule_as_its_remedy() {
        let error = status(403, "Forbidden", "pods is forbidden: User \"x\"");
        assert_eq!(
            error.to_string(),
            "cannot list and watch the pods of this node: RBAC forbids it (pods is forbidden: User \"x\")"
        );
        let remedy = r#"bind this ServiceAccount to ClusterRole epitaph-agent with the rule {apiGroups: [""], resources: [pods], verbs: [list, watch]}"#;
        assert_eq!(error.remedy().as_deref(), Some(remedy));
        assert_eq!(line(&error), format!("{error}; {remedy}"));
    }

    #[test]
    fn a_status_is_counted_under_its_reason() {
        for (code, reason, expected) in [
            (410, "Gone", FailureReason::Expired),
            (500, "Expired", FailureReason::Expired),
            (504, "Timeout", FailureReason::Status),
            (401, "Unauthorized", FailureReason::Unauthorized),
            (429, "TooManyRequests", FailureReason::Status),
        ] {
            assert_eq!(status(code, reason, "x").reason(), expected, "{code}");
        }
        let too_large = "Timeout: Too large resource version: 17, current: 3";
        assert_eq!(status(504, "Timeout", too_large).reason(), FailureReason::TooNew);
        let cause = r#"{"code": 504, "reason": "Timeout", "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}"#;
        let with_cause: Status = serde_json::from_str(cause).expect("a Status");
        let error = ApiError::of(&PODS, &kube::Error::Api(with_cause.boxed()));
        assert_eq!(error.reason(), FailureReason::TooNew);
        for (place, reason) in FailureReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
        }
    }

    #[test]
    fn text_of_an_api_server_is_escaped_and_cut() {
        let text = status(500, "InternalError", &format!("\u{1b}[2J{}", "x".repeat(4000))).to_string();
        assert!(!text.contains('\u{1b}') && text.len() < 600, "{text}");
    }
}
