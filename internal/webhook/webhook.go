// Package webhook refuses at admission what objects alone can refuse: deletes that nobody allowed or that would leave too
// few control planes, and machines that are declared twice. It is fast feedback and never the last word, so it must never
// ask a machine or take a lock: the same guards run again under the cluster's lock, with etcd's own answer.
package webhook

import (
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/survey"
)

// Setup adds the validating webhooks to the webhook server of a manager. The reader must not be cached: a cache can only
// err toward more control planes than there are, and that is what lets a delete through that should be refused.
func Setup(mgr ctrl.Manager, reader client.Reader) error {
	s := survey.NewWith(reader, nil, clock.RealClock{})
	err := ctrl.NewWebhookManagedBy(mgr, &v1alpha1.TalosMachine{}).
		WithValidator(&machineValidator{reader: reader, survey: s}).Complete()
	if err != nil {
		return fmt.Errorf("cannot set up the webhook of TalosMachine: %w", err)
	}
	err = ctrl.NewWebhookManagedBy(mgr, &v1alpha1.TalosCluster{}).WithValidator(&clusterValidator{}).Complete()
	if err != nil {
		return fmt.Errorf("cannot set up the webhook of TalosCluster: %w", err)
	}
	return nil
}
