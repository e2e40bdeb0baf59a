package demo

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// firstReplacement is the number of the control plane in examples/cluster/replacement.yaml.
const firstReplacement = 4

// guarded is a pod that may not be disturbed, on the Node of the control plane that is to go.
const guarded = `apiVersion: apps/v1
kind: Deployment
metadata: {name: ledger, namespace: default}
spec:
  selector: {matchLabels: {app: ledger}}
  template:
    metadata: {labels: {app: ledger}}
    spec:
      nodeSelector: {kubernetes.io/hostname: cp-2}
      tolerations: [{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}]
      containers: [{name: ledger, image: registry.k8s.io/pause:3.10}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: ledger-stays, namespace: default}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: ledger}}
`

func (d *Demo) fourthJoins(ctx context.Context) error {
	if _, err := d.kubectl(ctx, "apply", "-f", example("replacement.yaml")); err != nil {
		return err
	}
	return d.serve(ctx, 4)
}

func (d *Demo) budgetBlocks(ctx context.Context) error {
	if _, err := d.kubectlDemo(ctx, guarded, "apply", "-f", "-"); err != nil {
		return err
	}
	pod, err := d.guardedPod(ctx)
	if err != nil {
		return err
	}
	if d.second, err = d.beginRemoval(ctx, "cp-2"); err != nil {
		return err
	}
	if err := d.remove(ctx, "cp-2"); err != nil {
		return err
	}
	err = d.await(ctx, "the removal of cp-2 says that its drain is blocked, and by what", func(ctx context.Context) error {
		told := d.gone(ctx, d.second)
		if told == nil {
			return errors.New("it is gone")
		}
		return says(told.Error(), string(v1alpha1.ReasonDrainBlocked), pod, "ledger-stays")
	})
	if err != nil {
		return err
	}
	sent, err := d.lab.Fleet.Changes(ctx, d.second.before.Name, d.second.from)
	if err != nil {
		return err
	}
	if len(sent) > 0 {
		return fmt.Errorf("%s was sent to cp-2 although its drain is blocked", sent[0].Method)
	}
	return nil
}

// guardedPod waits until the pod runs and its budget is known to allow nothing.
func (d *Demo) guardedPod(ctx context.Context) (name string, err error) {
	kube, err := d.workload(ctx)
	if err != nil {
		return "", err
	}
	err = d.await(ctx, "the pod runs and its budget allows no disruption", func(ctx context.Context) error {
		pods, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=ledger"})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("there are %d pods, want one that runs", len(pods.Items))
		}
		name = pods.Items[0].Name
		budget, err := kube.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, "ledger-stays", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if budget.Status.CurrentHealthy != 1 || budget.Status.DisruptionsAllowed != 0 {
			return fmt.Errorf("the budget counts %d healthy pods and allows %d disruptions", budget.Status.CurrentHealthy, budget.Status.DisruptionsAllowed)
		}
		return nil
	})
	return name, err
}

func (d *Demo) budgetReleased(ctx context.Context) error {
	if _, err := d.kubectlDemo(ctx, "", "delete", "poddisruptionbudget", "ledger-stays"); err != nil {
		return err
	}
	if err := d.ends(ctx, d.second); err != nil {
		return err
	}
	return d.serve(ctx, 3)
}
