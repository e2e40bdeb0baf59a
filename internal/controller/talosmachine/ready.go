package talosmachine

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/decide/deleteguard"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/membership"
	"github.com/maesh/provider-ichor/internal/survey"
)

// stageRunning is the stage in which Talos's own readiness means something.
const stageRunning = "running"

// markReady says whether the machine is a working member of its cluster. Talos's own readiness covers its services, its
// static pods, its etcd and its Node; but a Node that another machine writes to as well looks right to both of them.
func markReady(mg *v1alpha1.TalosMachine, o survey.Observation, f facts.Cluster, now time.Time) {
	live := o.Live
	m, _ := f.Machine(idOf(mg))
	etcd := etcdTrouble(mg, f, m, now)
	switch {
	case live.Stage == "booting" || live.Stage == "installing":
		mark(mg, xpv2.TypeReady, corev1.ConditionFalse, v1alpha1.ReasonBooting, fmt.Sprintf("The machine is in stage %q", live.Stage)+etcd)
	case live.Stage != stageRunning:
		mark(mg, xpv2.TypeReady, corev1.ConditionFalse, xpv2.ReasonUnavailable, fmt.Sprintf("The machine is in stage %q", live.Stage))
	case !live.Ready && f.Bootstrapped == "":
		mark(mg, xpv2.TypeReady, corev1.ConditionFalse, v1alpha1.ReasonBooting, "The machine waits for the cluster to be bootstrapped")
	case !live.Ready:
		mark(mg, xpv2.TypeReady, corev1.ConditionFalse, xpv2.ReasonUnavailable, "Talos says that the machine is not ready: "+strings.Join(o.Unmet, "; ")+etcd)
	case len(m.SameNodename) > 0:
		mark(mg, xpv2.TypeReady, corev1.ConditionFalse, xpv2.ReasonUnavailable, deleteguard.NodeUnknown(m))
	default:
		mark(mg, xpv2.TypeReady, corev1.ConditionTrue, xpv2.ReasonAvailable, "")
	}
}

// etcdTrouble says of a control plane that is not ready what its etcd lacks, if Talos does not say it.
func etcdTrouble(mg *v1alpha1.TalosMachine, f facts.Cluster, m facts.Machine, now time.Time) string {
	if old := oldData(mg, f, m, now); old != "" {
		return old
	}
	live, _ := m.Live.Get()
	if m.Role != facts.ControlPlane || !facts.Is(live.EtcdService, "Failed") {
		return ""
	}
	says := cmp.Or(live.EtcdSays, "it does not say why")
	if f.Bootstrapped == "" {
		return fmt.Sprintf(". Its etcd service has failed (%s): it has waited for the cluster to be bootstrapped for as long as Talos lets it. Reboot the machine once that can be", says)
	}
	return fmt.Sprintf(". Its etcd service has failed (%s) and is not started again in this boot. See talosctl service etcd and talosctl dmesg, correct what keeps it from starting, and reboot the machine", says)
}

// gone is what is said of an etcd that is no member any more.
const gone = "Its etcd does not come up, and the members of etcd do not list it"

// bootsWithin is how long a machine may boot before its etcd service has more to do than to wait for the machine.
const bootsWithin = 5 * time.Minute

// oldData says of a control plane whose etcd was started, or has failed, and is no member: what it may have is the data of a
// member that was removed, which etcd never takes back, so that it starts and ends for ever. One that joins waits until it is
// listed, and only then starts. The service waits between two starts, which is most of the time, and before the first one:
// that is told apart by how long the machine boots.
func oldData(mg *v1alpha1.TalosMachine, f facts.Cluster, m facts.Machine, now time.Time) string {
	live, _ := m.Live.Get()
	state, known := live.EtcdService.Get()
	if m.Role != facts.ControlPlane || !known || f.Bootstrapped == "" || membership.Of(f, m).State != membership.Absent {
		return ""
	}
	was := mg.GetCondition(xpv2.TypeReady)
	boots := was.Reason == v1alpha1.ReasonBooting && now.Sub(was.LastTransitionTime.Time) > bootsWithin
	waited := state == "Waiting" && (boots || strings.Contains(was.Message, gone))
	if state != "Running" && state != "Failed" && !waited {
		return ""
	}
	return fmt.Sprintf(". %s. It may have the data of a member that was removed, which etcd never takes back, or it could not join. "+
		"Remove this TalosMachine with the annotation %s: \"true\", which resets the machine, and declare it again to have it join anew; "+
		"or reset it by hand with talosctl reset --graceful=false --reboot --system-labels-to-wipe=STATE,EPHEMERAL", gone, v1alpha1.AnnotationAllowDelete)
}
