package topology

import (
	"context"
	"maps"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/crossplane/function-sdk-go/response"
	"google.golang.org/protobuf/types/known/structpb"

	topology "github.com/maesh/provider-ichor/apis/topology/v1alpha1"
	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// reasonRemoving is the reason of the event that a removal was let through.
const reasonRemoving = "RemovingMachine"

// A Function serves the composition of topologies. It keeps nothing between two requests.
type Function struct {
	fnv1.UnimplementedFunctionRunnerServiceServer

	log logging.Logger
}

// NewFunction returns a Function that logs what it decided, for debugging.
func NewFunction(log logging.Logger) *Function { return &Function{log: log} }

// RunFunction composes one topology. What is wrong with it is a fatal result, on which Crossplane changes nothing; it is
// never an error, which Crossplane would repeat without showing it to the owner of the claim.
func (fn *Function) RunFunction(_ context.Context, req *fnv1.RunFunctionRequest) (*fnv1.RunFunctionResponse, error) {
	rsp := response.To(req, response.DefaultTTL)
	if err := compose(req, rsp); err != nil {
		fn.log.Debug("Refused a topology", "tag", req.GetMeta().GetTag(), "error", err)
		rsp.Conditions = append(rsp.GetConditions(), invalid(err))
		response.Fatal(rsp, err)
		return rsp, nil
	}
	fn.log.Debug("Composed a topology", "tag", req.GetMeta().GetTag(), "resources", len(rsp.GetDesired().GetResources()))
	return rsp, nil
}

// compose fills the response, or leaves it as it is and returns an error.
func compose(req *fnv1.RunFunctionRequest, rsp *fnv1.RunFunctionResponse) error {
	f, err := Parse(req)
	if err != nil {
		return err
	}
	plan := Decide(f)
	objects, err := Render(f, plan)
	if err != nil {
		return err
	}
	status, err := Status(f, plan)
	if err != nil {
		return err
	}
	rsp.Desired = desire(f, req.GetDesired(), objects, status)
	rsp.Requirements = requirements(f)
	rsp.Conditions = append(rsp.GetConditions(), Conditions(f, plan)...)
	if plan.Removal.Step == Drop {
		response.Normal(rsp, plan.Removal.Message).WithReason(reasonRemoving).TargetCompositeAndClaim()
	}
	return nil
}

// desire adds the objects and the status to what the functions before this one desire.
func desire(f Facts, before *fnv1.State, objects map[string]*fnv1.Resource, status *structpb.Struct) *fnv1.State {
	composite := &fnv1.Resource{Resource: status, Ready: before.GetComposite().GetReady()}
	for key, value := range before.GetComposite().GetResource().GetFields()["status"].GetStructValue().GetFields() {
		if s := status.GetFields()["status"].GetStructValue(); s.GetFields()[key] == nil {
			s.Fields[key] = value
		}
	}
	composite.ConnectionDetails = maps.Clone(before.GetComposite().GetConnectionDetails())
	if f.Owner.Claim != "" && len(f.Cluster.Connection) > 0 {
		composite.ConnectionDetails = f.Cluster.Connection
	}
	resources := map[string]*fnv1.Resource{}
	maps.Copy(resources, before.GetResources())
	maps.Copy(resources, objects)
	return &fnv1.State{Composite: composite, Resources: resources}
}

// requirements make Crossplane look for every TalosMachine of the topology: what was dropped is among them until it is gone.
func requirements(f Facts) *fnv1.Requirements {
	return &fnv1.Requirements{Resources: map[string]*fnv1.ResourceSelector{
		requiredMachines: {
			ApiVersion: v1alpha1.SchemeGroupVersion.String(),
			Kind:       v1alpha1.TalosMachineKind,
			Namespace:  &f.Owner.Namespace,
			Match: &fnv1.ResourceSelector_MatchLabels{
				MatchLabels: &fnv1.MatchLabels{Labels: map[string]string{topology.LabelTopology: f.Owner.Base()}},
			},
		},
	}}
}
