package deleteguard

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/story"
)

var checks = map[string]func(facts.Cluster, facts.MachineID) *Refusal{
	"identity":  CheckIdentity,
	"admission": CheckAdmission,
	"etcd":      CheckEtcd,
	"removal":   CheckRemoval,
	"reboot":    CheckReboot,
	"teardown":  CheckTeardown,
	"cordons":   CheckCordons,
}

// TestStories asks guards about clusters. Run it with -rewrite to write down what they say now, and commit that only if you
// understand what changed and want it.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			f, err := story.Parse(d.Input)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			r := checks[d.Cmd](f, facts.MachineID("id-"+d.CmdArgs[0].Key))
			if r == nil {
				return "may go\n"
			}
			return fmt.Sprintf("%s\n  %s\n", r.Reason, r.Error())
		})
	})
}

// TestChain asks about a cluster in which everything is wrong, and rights one wrong after the other: the order of a chain
// decides which reason is shown, and here is that order.
func TestChain(t *testing.T) {
	cases := map[string]struct {
		reason string
		check  func(facts.Cluster, facts.MachineID) *Refusal
		steps  []struct {
			want Reason
			text string
		}
	}{
		"Removal": {
			reason: "Which machine it is, then what objects say, then what etcd says.",
			check:  CheckRemoval,
			steps: []struct {
				want Reason
				text string
			}{
				{DuplicateMachine, "prod declared=? alarms=?\ncp-1 voter follows=a2\ncp-2 voter mute term=8\ncp-3 voter uuid=x same=y\nmember a9 name=gone\nmember b1 learner"},
				{IdentityMismatch, "prod declared=? alarms=?\ncp-1 voter follows=a2\ncp-2 voter mute term=8\ncp-3 voter uuid=x\nmember a9 name=gone\nmember b1 learner"},
				{UnknownIdentity, "prod declared=? alarms=?\ncp-1 voter follows=a2\ncp-2 voter mute term=8\ncp-3 voter unpinned\nmember a9 name=gone\nmember b1 learner"},
				{NotAllowed, "prod declared=? alarms=?\ncp-1 voter follows=a2\ncp-2 voter mute term=8\ncp-3 voter\nmember a9 name=gone\nmember b1 learner"},
				{QuorumWouldBreak, "prod declared=? alarms=?\ncp-1 voter follows=a2\ncp-2 voter mute term=8 removed\ncp-3 voter allowed\nmember a9 name=gone\nmember b1 learner"},
				{UnknownCount, "prod declared=? alarms=?\ncp-1 voter follows=a2\ncp-2 voter mute term=8\ncp-3 voter allowed\nmember a9 name=gone\nmember b1 learner"},
				{BelowDeclaredCount, "prod declared=3 alarms=?\ncp-1 voter follows=a2\ncp-2 voter mute term=8\ncp-3 voter allowed\nmember a9 name=gone\nmember b1 learner"},
				{NoLeader, "prod declared=2 alarms=?\ncp-1 voter sick\ncp-2 voter mute sick\ncp-3 voter allowed etcd-down\nmember a9 name=gone\nmember b1 learner"},
				{UnknownMembers, "prod declared=2 alarms=?\ncp-1 voter follows=a2\ncp-2 voter mute term=8\ncp-3 voter allowed\nmember a9 name=gone\nmember b1 learner"},
				{MembersDisagree, "prod declared=2 alarms=?\ncp-1 voter follows=a2\ncp-2 voter term=8\ncp-3 voter allowed\nmember a9 name=gone\nmember b1 learner"},
				{UnknownAlarms, "prod declared=2 alarms=?\ncp-1 voter\ncp-2 voter\ncp-3 voter allowed\nmember a9 name=gone\nmember b1 learner"},
				{EtcdAlarm, "prod declared=2 alarms=CORRUPT:a1\ncp-1 voter\ncp-2 voter\ncp-3 voter allowed\nmember a9 name=gone\nmember b1 learner"},
				{LearnerPresent, "prod declared=2\ncp-1 voter\ncp-2 voter\ncp-3 voter allowed\nmember a9 name=gone\nmember b1 learner"},
				{QuorumWouldBreak, "prod declared=2\ncp-1 voter\ncp-2 voter silent\ncp-3 voter allowed\nmember a9 name=gone"},
				{OtherMemberUnhealthy, "prod declared=4\ncp-1 voter\ncp-2 voter\ncp-3 voter allowed\ncp-4 voter\ncp-5 voter\nmember a9 name=gone"},
				{MemberUnmapped, "prod declared=5\ncp-1 voter\ncp-2 voter\ncp-3 voter allowed sick\ncp-4 voter\ncp-5 voter\ncp-6 voter\nmember a9 name=gone"},
				{BelowDeclaredCount, "prod declared=3\ncp-1 voter\ncp-2 voter\ncp-3 voter allowed\ncp-4 blank"},
				{OtherMachineCordoned, "prod declared=3\ncp-1 voter\ncp-2 voter node=ours\ncp-3 voter allowed\ncp-4 voter"},
				{"", "prod declared=3\ncp-1 voter\ncp-2 voter\ncp-3 voter allowed\ncp-4 voter"},
			},
		},
		"Reboot": {
			reason: "Nobody asks for permission or counts: it comes back.",
			check:  CheckReboot,
			steps: []struct {
				want Reason
				text string
			}{
				{DuplicateMachine, "prod declared=? alarms=?\ncp-1 voter\ncp-2 voter\ncp-3 voter same=y"},
				{UnknownAlarms, "prod declared=? alarms=?\ncp-1 voter\ncp-2 voter\ncp-3 voter"},
				{LearnerPresent, "prod declared=?\ncp-1 voter\ncp-2 voter\ncp-3 learner"},
				{QuorumWouldBreak, "prod declared=?\ncp-1 voter\ncp-3 voter"},
				{OtherMemberUnhealthy, "prod declared=?\ncp-1 voter\ncp-2 voter sick\ncp-3 voter\ncp-4 voter\ncp-5 voter"},
				{OtherMachineCordoned, "prod declared=?\ncp-1 voter node=ours\ncp-2 voter\ncp-3 voter"},
				{"", "prod declared=?\ncp-1 voter\ncp-2 voter\ncp-3 voter"},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, s := range tc.steps {
				f, err := story.Parse(s.text)
				if err != nil {
					t.Fatal(err)
				}
				if r := tc.check(f, "id-cp-3"); reasonOf(r) != s.want {
					t.Errorf("\n%s\n%s\nis answered with %q, want %q: %v", tc.reason, s.text, reasonOf(r), s.want, r)
				}
			}
		})
	}
}
