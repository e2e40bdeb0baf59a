package simulator

import (
	"fmt"
	"slices"
	"strings"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// callDetail says in a few words what tells this call from others of its method; empty if nothing does.
func callDetail(req any) string {
	switch r := req.(type) {
	case *cosiv1alpha1.GetRequest:
		return strings.Join([]string{r.GetType(), r.GetNamespace(), r.GetId()}, "/")
	case *cosiv1alpha1.ListRequest:
		return strings.Join([]string{r.GetType(), r.GetNamespace()}, "/")
	case *cosiv1alpha1.WatchRequest:
		return strings.Join([]string{r.GetType(), r.GetNamespace(), r.GetId()}, "/")
	case *machine.ApplyConfigurationRequest:
		if r.GetDryRun() {
			return r.GetMode().String() + " dry-run"
		}
		return r.GetMode().String()
	case *machine.ResetRequest:
		return resetDetail(r)
	case *machine.EtcdRemoveMemberByIDRequest:
		return fmt.Sprintf("%016x", r.GetMemberId())
	case *machine.ReadRequest:
		return r.GetPath()
	case *machine.CopyRequest:
		return r.GetRootPath()
	case *machine.UpgradeRequest:
		return r.GetImage()
	case *machine.LifecycleServiceUpgradeRequest:
		return r.GetSource().GetImageName()
	case *machine.ImageServicePullRequest:
		return r.GetImageRef()
	default:
		return ""
	}
}

func resetDetail(r *machine.ResetRequest) string {
	labels := []string{}
	for _, p := range r.GetSystemPartitionsToWipe() {
		if p.GetWipe() {
			labels = append(labels, p.GetLabel())
		}
	}
	return fmt.Sprintf("graceful=%t reboot=%t mode=%s partitions=%s", r.GetGraceful(), r.GetReboot(), r.GetMode(), strings.Join(labels, ","))
}

func sortedRoles(roles role.Set) []string {
	out := roles.Strings()
	slices.Sort(out)
	return out
}
