//! The forges whose webhooks can be read.

use http::HeaderMap;
use serde::{Deserialize, Serialize};

use crate::error::EventError;
use crate::webhooks::delivery::Delivery;
use crate::webhooks::forges::{azure_devops, bitbucket, generic, github, gitlab, sourceforge, sourcehut};

/// A program whose webhooks can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WebhookForge {
    /// GitHub, and GitHub Enterprise Server.
    GitHub,
    /// GitLab: webhooks of projects, of groups and of the instance.
    GitLab,
    /// Gitea.
    Gitea,
    /// Forgejo.
    Forgejo,
    /// Gogs.
    Gogs,
    /// Bitbucket Cloud and Bitbucket Data Center.
    Bitbucket,
    /// SourceForge, and other sites of Apache Allura.
    SourceForge,
    /// sourcehut: webhooks with a GraphQL query.
    Sourcehut,
    /// Azure DevOps.
    #[serde(rename = "azure-devops")]
    AzureDevOps,
    /// A program that sends JSON, and signs it as Standard Webhooks says.
    Standard,
    /// A program that sends JSON, with a bearer token.
    Generic,
}

impl WebhookForge {
    /// All of them.
    pub const ALL: [WebhookForge; 11] = [
        WebhookForge::GitHub,
        WebhookForge::GitLab,
        WebhookForge::Gitea,
        WebhookForge::Forgejo,
        WebhookForge::Gogs,
        WebhookForge::Bitbucket,
        WebhookForge::SourceForge,
        WebhookForge::Sourcehut,
        WebhookForge::AzureDevOps,
        WebhookForge::Standard,
        WebhookForge::Generic,
    ];

    /// Returns its name in settings.
    pub const fn name(self) -> &'static str {
        match self {
            WebhookForge::GitHub => "github",
            WebhookForge::GitLab => "gitlab",
            WebhookForge::Gitea => "gitea",
            WebhookForge::Forgejo => "forgejo",
            WebhookForge::Gogs => "gogs",
            WebhookForge::Bitbucket => "bitbucket",
            WebhookForge::SourceForge => "sourceforge",
            WebhookForge::Sourcehut => "sourcehut",
            WebhookForge::AzureDevOps => "azure-devops",
            WebhookForge::Standard => "standard",
            WebhookForge::Generic => "generic",
        }
    }

    /// Returns whether it signs with a private key, so that a secret of a webhook is its public key. That of
    /// its own site is known.
    pub const fn has_public_key(self) -> bool {
        matches!(self, WebhookForge::Sourcehut)
    }

    /// Returns whether a delivery of `event` with `action` may change a repository, as far as these two tell.
    pub fn may_change(self, event: &str, action: Option<&str>) -> bool {
        self != WebhookForge::GitHub || github::may_change(event, action)
    }

    /// Returns whether the signature of a form is one over the JSON in it.
    pub(crate) const fn signs_json_of_forms(self) -> bool {
        matches!(self, WebhookForge::Gitea | WebhookForge::Forgejo | WebhookForge::Gogs)
    }

    /// Reads a delivery of this forge; `site` is its URL, for forges that name repositories by path alone.
    ///
    /// # Errors
    /// If it cannot be understood. The error says why.
    pub(crate) fn read<'b>(
        self,
        headers: &'b HeaderMap,
        body: &'b [u8],
        site: Option<&str>,
    ) -> Result<Delivery<'b>, EventError> {
        match self {
            WebhookForge::GitHub => github::read(headers, body, &github::GITHUB),
            WebhookForge::Gitea => github::read(headers, body, &github::GITEA),
            WebhookForge::Forgejo => github::read(headers, body, &github::FORGEJO),
            WebhookForge::Gogs => github::read(headers, body, &github::GOGS),
            WebhookForge::GitLab => gitlab::read(headers, body, site),
            WebhookForge::Bitbucket => bitbucket::read(headers, body, site),
            WebhookForge::SourceForge => sourceforge::read(body),
            WebhookForge::Sourcehut => sourcehut::read(headers, body, site),
            WebhookForge::AzureDevOps => azure_devops::read(body),
            WebhookForge::Standard | WebhookForge::Generic => generic::read(headers, body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_settings() {
        for forge in WebhookForge::ALL {
            assert_eq!(serde_json::to_string(&forge).unwrap(), format!("\"{}\"", forge.name()));
        }
    }
}
