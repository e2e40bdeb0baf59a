package archtest

import (
	"go/ast"
	"go/types"
	"maps"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// A row says who alone may call a function, or take it as a value.
type row struct {
	callee  string
	callers []string
}

const (
	machinery = "github.com/siderolabs/talos/pkg/machinery"
	rpc       = machinery + "/api/machine.MachineServiceClient."
	kube      = "k8s.io/client-go/kubernetes/typed/"
)

// reads are the calls to a Talos machine that change nothing there.
var reads = []row{
	{rpc + "EtcdAlarmList", []string{"internal/talos.Client.EtcdAlarms"}},
	{rpc + "EtcdMemberList", []string{"internal/talos.Client.EtcdMembers"}},
	{rpc + "EtcdStatus", []string{"internal/talos.Client.EtcdStatus"}},
	{rpc + "Read", []string{"internal/talos.Client.BootID"}},
	{rpc + "ServiceList", []string{"internal/talos.Client.EtcdService"}},
	{rpc + "Version", []string{"internal/talos.Client.Version"}},
}

// writes are the calls to a Talos machine that disturb or destroy. The methods of the door that make them are guarded by
// their names wherever an interface declares them: see doors.
var writes = []row{
	{rpc + "ApplyConfiguration", []string{"internal/talos.Client.ApplyConfig"}},
	{rpc + "Bootstrap", []string{"internal/talos.Client.Bootstrap"}},
	{rpc + "EtcdForfeitLeadership", []string{"internal/talos.Client.ForfeitLeadership"}},
	{rpc + "EtcdLeaveCluster", []string{"internal/talos.Client.LeaveEtcd"}},
	{rpc + "EtcdRemoveMemberByID", []string{"internal/talos.Client.RemoveMember"}},
	{rpc + "Reboot", []string{"internal/talos.Client.Reboot"}},
	{rpc + "Reset", []string{"internal/talos.Client.Reset"}},
}

// steps are who may ask for what disturbs or destroys: one function each.
var steps = []row{
	{"internal/act.Bootstrapper.Bootstrap", []string{"internal/act.Actor.Bootstrap"}},
	{"internal/act.Configurer.ApplyConfig", []string{"internal/act.applyConfig"}},
	{"internal/act.Leader.ForfeitLeadership", []string{"internal/act.Actor.MoveLeadership"}},
	{"internal/act.Leaver.LeaveEtcd", []string{"internal/act.Actor.LeaveEtcd"}},
	{"internal/act.MemberRemover.RemoveMember", []string{"internal/act.Actor.RemoveMember"}},
	{"internal/act.Rebooter.Reboot", []string{"internal/act.Actor.Reboot"}},
	{"internal/act.Resetter.Reset", []string{"internal/act.Actor.Reset"}},

	// A configuration disturbs nothing on a blank machine and without a reboot: these need no lock.
	{"internal/act.applyConfig", []string{"internal/act.FirstConfig", "internal/act.ChangeConfig", "internal/act.Actor.StageConfig"}},
	{"internal/act.FirstConfig", []string{"internal/controller/talosmachine.external.configure"}},
	{"internal/act.ChangeConfig", []string{"internal/controller/talosmachine.external.reconfigure"}},

	// What is deleted or evicted from Kubernetes. A connection Secret is Crossplane's to delete.
	{kube + "core/v1.NodeInterface.Delete", []string{"internal/act.Actor.DeleteNode"}},
	{"k8s.io/kubectl/pkg/drain.Helper.EvictPod", []string{"internal/act.evict"}},
	{"sigs.k8s.io/controller-runtime/pkg/client.Writer.Delete", []string{
		"internal/clusterlock.session.delete", "internal/controller/taloscluster.keeper.remove",
	}},
}

// proofs are the locks and permits that stand before a step.
var proofs = []row{
	{"internal/clusterlock.Locks.Acquire", nil},
	{"internal/disruption.Locks.Acquire", []string{"internal/disruption.Gate.AcquireDisruptiveLock"}},
	{"internal/decide/permit.Grant", []string{
		"internal/decide/bootstrap.choose", "internal/decide/configchange.change.act", "internal/decide/removal.removal.act",
	}},
	{"internal/decide/permit.Permit.Check", []string{
		"internal/act.Actor.permitted", "internal/act.Actor.irreversible", "internal/act.Actor.Reboot",
	}},
}

// counts are who may ask whether a machine counts as a control plane, and count those that do.
var counts = []row{
	{"apis/v1alpha1.TalosMachine.IsApprovedControlPlane", []string{
		"internal/survey.CountApprovedControlPlanes", "internal/controller/talosmachine.external.completesTransition",
	}},
	{"internal/survey.CountApprovedControlPlanes", []string{
		"internal/disruption.Gate.AcquireDisruptiveLock", "internal/controller/taloscluster.external.Observe",
	}},
}

// otherSide is what stands on the other side of the wire, or around the product: it may not import what is guarded.
var otherSide = []string{"internal/simulator", "internal/lab", "cmd/talossim", "cmd/lab"}

// wrongCalls finds uses of guarded functions elsewhere than in the one function that the tables name. Functions are told
// by their types, so another name, a method value or an embedded interface hides nothing.
func wrongCalls(t *tree) []problem {
	return t.wrongCalls(calls())
}

// calls are all the tables.
func calls() []row { return slices.Concat(reads, writes, steps, proofs, counts) }

func (t *tree) wrongCalls(rows []row) []problem {
	allowed := map[string][]string{}
	unseen := map[string]bool{}
	for _, r := range rows {
		allowed[r.callee] = r.callers
		for _, c := range r.callers {
			unseen[c+" of "+r.callee] = true
		}
	}
	doors := doors()
	var found []problem
	for _, p := range t.product() {
		uses(p, func(id *ast.Ident, used types.Object, by string) {
			f, ok := used.(*types.Func)
			if !ok {
				return
			}
			callee := name(f.Origin())
			if _, listed := allowed[callee]; !listed && !guarded(f, doors) {
				return
			}
			delete(unseen, by+" of "+callee)
			if !slices.Contains(allowed[callee], by) {
				found = append(found, t.problem(id.Pos(), "%s uses %s, which only %s may", by, callee, someone(allowed[callee])))
			}
		})
	}
	for _, use := range slices.Sorted(maps.Keys(unseen)) {
		found = append(found, stale("the tables of calls allow a use that there is not: by %s", use))
	}
	return found
}

func someone(callers []string) string {
	if len(callers) == 0 {
		return "nobody"
	}
	return strings.Join(callers, " and ")
}

// product are the packages but those of the other side.
func (t *tree) product() []*packages.Package {
	return slices.DeleteFunc(slices.Clone(t.packages), func(p *packages.Package) bool {
		return within(short(p.PkgPath), otherSide...)
	})
}

// doors are the names of the methods that disturb or destroy: of the RPCs, and of the methods of the door that make them.
func doors() map[string]bool {
	names := map[string]bool{}
	last := func(s string) string { return s[strings.LastIndex(s, ".")+1:] }
	for _, r := range writes {
		names[last(r.callee)] = true
		for _, c := range r.callers {
			names[last(c)] = true
		}
	}
	return names
}

// guarded tells whether a function may be used only where a table allows it, though no table need name it: whatever speaks
// to a Talos machine, the names of doors, and whatever deletes or evicts.
func guarded(f *types.Func, doors map[string]bool) bool {
	if f.Pkg() == nil || f.Signature().Recv() == nil {
		return false
	}
	path := f.Pkg().Path()
	typ := strings.TrimSuffix(strings.TrimPrefix(name(f), short(path)+"."), "."+f.Name())
	switch {
	case within(path, machinery+"/client"), within(path, machinery+"/api"):
		return strings.HasSuffix(typ, "Client")
	case path == "google.golang.org/grpc":
		return f.Name() == "Invoke" || f.Name() == "NewStream"
	case path == "github.com/cosi-project/runtime/pkg/state":
		return slices.Contains([]string{"Create", "Update", "UpdateWithConflicts", "Destroy", "Teardown", "TeardownAndDestroy", "AddFinalizer", "RemoveFinalizer", "Modify"}, f.Name())
	case strings.HasPrefix(path, kube), within(path, "sigs.k8s.io/controller-runtime/pkg/client"), within(path, "k8s.io/client-go/dynamic"):
		return strings.HasPrefix(f.Name(), "Delete") || strings.HasPrefix(f.Name(), "Evict")
	case path == "k8s.io/kubectl/pkg/drain":
		return strings.HasPrefix(f.Name(), "Delete") || strings.HasPrefix(f.Name(), "Evict")
	case within(path, module):
		return doors[f.Name()] && !demandsPermit(f.Signature())
	}
	return false
}

// demandsPermit tells whether a function cannot be called without a permit, so that act itself guards it.
func demandsPermit(s *types.Signature) bool {
	for v := range s.Params().Variables() {
		if n, ok := types.Unalias(v.Type()).(*types.Named); ok && n.Obj().Name() == "Permit" && n.Obj().Pkg().Path() == module+"/internal/decide/permit" {
			return true
		}
	}
	return false
}
