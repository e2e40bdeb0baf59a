package topology

import (
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestClusterReadyTellsWhatIsTheMatter(t *testing.T) {
	cases := map[string]struct {
		reason  string
		c       Cluster
		status  fnv1.Status
		message string
	}{
		"NotLookedAt": {
			reason:  "Nobody has looked at it yet.",
			status:  fnv1.Status_STATUS_CONDITION_UNKNOWN,
			message: "The TalosCluster does not tell yet",
		},
		"CannotBegin": {
			reason:  "Without a ProviderConfig no pass comes as far as Ready; whoever wrote the claim sees only the claim.",
			c:       Cluster{Synced: Condition{Status: corev1.ConditionFalse, Message: "connect failed: no ProviderConfig"}},
			status:  fnv1.Status_STATUS_CONDITION_FALSE,
			message: "The TalosCluster does not get on: connect failed: no ProviderConfig",
		},
		"NotReady": {
			reason:  "What it says of itself comes before what went wrong in one pass.",
			c:       Cluster{Ready: Condition{Status: corev1.ConditionFalse, Reason: "Booting", Message: "cp-1 boots"}, Synced: Condition{Status: corev1.ConditionFalse, Message: "boom"}},
			status:  fnv1.Status_STATUS_CONDITION_FALSE,
			message: "cp-1 boots",
		},
		"Ready": {
			reason: "It is ready.",
			c:      Cluster{Ready: Condition{Status: corev1.ConditionTrue, Reason: "Available"}},
			status: fnv1.Status_STATUS_CONDITION_TRUE,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := clusterReady(tc.c)
			if got.GetStatus() != tc.status || got.GetMessage() != tc.message {
				t.Errorf("\n%s\nclusterReady(...) = %s %q, want %s %q", tc.reason, got.GetStatus(), got.GetMessage(), tc.status, tc.message)
			}
		})
	}
}
