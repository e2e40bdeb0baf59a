package e2e

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	topology "github.com/maesh/provider-ichor/apis/topology/v1alpha1"
	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// compositeOf a claim is the name of its XTalosTopology.
func compositeOf(claim *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(claim.Object, "spec", "resourceRef", "name")
	return name
}

func (e *E2E) deleteRefused(ctx context.Context) error {
	if err := e.settled(ctx); err != nil {
		return err
	}
	claim, err := e.topology(ctx, topology.KindClaim, claimName)
	if err != nil {
		return err
	}
	from, err := e.lab.Fleet.LastCall(ctx)
	if err != nil {
		return err
	}
	if err := wants(claim, topology.TypeDeletionProtected, corev1.ConditionTrue, v1alpha1.AnnotationAllowDelete); err != nil {
		return err
	}
	for _, object := range [][]string{{"talostopologyclaim", claimName}, {"xtalostopology", compositeOf(claim)}} {
		words := []string{v1alpha1.AnnotationAllowDelete, "wipe its machines"}
		if err := e.refused(ctx, words, append([]string{"delete", "--wait=false"}, object...)...); err != nil {
			return err
		}
	}
	if err := e.quiet(ctx, 2*poll); err != nil {
		return err
	}
	return errors.Join(e.claimReady(ctx), e.voters(ctx, 3), e.untouched(ctx, "", from))
}

func (e *E2E) deleteAllowed(ctx context.Context) error {
	return e.takeDown(ctx, topology.KindClaim, claimName)
}

// takeDown allows the delete of a topology, asks for it, and wants nothing to remain.
func (e *E2E) takeDown(ctx context.Context, kind, name string) error {
	if _, err := e.kubectl(ctx, "annotate", kind, name, v1alpha1.AnnotationAllowDelete+"=true"); err != nil {
		return err
	}
	err := e.await(ctx, "it says that it may be deleted", func(ctx context.Context) error {
		t, err := e.topology(ctx, kind, name)
		if err != nil {
			return err
		}
		return wants(t, topology.TypeDeletionProtected, corev1.ConditionFalse, topology.ReasonAllowed)
	})
	if err != nil {
		return err
	}
	// The guard itself goes a moment after the topology says so.
	err = e.await(ctx, "its delete is accepted", func(ctx context.Context) error {
		_, err := e.kubectl(ctx, "delete", kind, name, "--wait=false")
		return err
	})
	if err != nil {
		return err
	}
	return e.await(ctx, "every machine is blank and nothing remains", func(ctx context.Context) error {
		return errors.Join(e.nothingRemains(ctx), e.allBlank(ctx))
	})
}

// nothingRemains wants nothing of a topology to be left, and says where the removal is of what is.
func (e *E2E) nothingRemains(ctx context.Context) error {
	machines, err := e.machines(ctx)
	if err != nil {
		return err
	}
	if len(machines) > 0 {
		c := machines[0].GetCondition(v1alpha1.TypeRemoval)
		return fmt.Errorf("%d TalosMachines are left; %s says: %s: %s", len(machines), machines[0].GetName(), c.Reason, c.Message)
	}
	for _, kind := range []string{topology.KindClaim, topology.KindLegacyTopology, topology.KindTopology} {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(topology.SchemeGroupVersion.WithKind(kind + "List"))
		if err := e.empty(ctx, l); err != nil {
			return err
		}
	}
	for _, l := range []client.ObjectList{
		&v1alpha1.TalosClusterList{}, &v1alpha1.ProviderConfigUsageList{}, &corev1.SecretList{}, &coordinationv1.LeaseList{},
	} {
		if err := e.empty(ctx, l, client.InNamespace(namespace)); err != nil {
			return err
		}
	}
	return nil
}

func (e *E2E) empty(ctx context.Context, l client.ObjectList, o ...client.ListOption) error {
	if err := e.kube.List(ctx, l, o...); err != nil {
		return err
	}
	if n := meta.LenList(l); n > 0 {
		return fmt.Errorf("%d objects of %T %s are left", n, l, l.GetObjectKind().GroupVersionKind().Kind)
	}
	return nil
}

// topologyReady declares the smallest cluster without a claim.
func (e *E2E) topologyReady(ctx context.Context) error {
	d, err := e.example("single-node.yaml")
	if err != nil {
		return err
	}
	if err := e.write(ctx, d); err != nil {
		return err
	}
	return e.await(ctx, "the topology is Ready, and its Node", func(ctx context.Context) error {
		t, err := e.topology(ctx, topology.KindTopology, singleName)
		if err != nil {
			return err
		}
		if err := wants(t, "Ready", corev1.ConditionTrue); err != nil {
			return err
		}
		return e.nodes(ctx, singleName+"-connection", 1)
	})
}

func (e *E2E) topologyDeleted(ctx context.Context) error {
	words := []string{v1alpha1.AnnotationAllowDelete, "wipe its machines"}
	if err := e.refused(ctx, words, "delete", topology.KindTopology, singleName, "--wait=false"); err != nil {
		return err
	}
	return e.takeDown(ctx, topology.KindTopology, singleName)
}
