package demo

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/maesh/provider-ichor/internal/lab/story"
)

// minSecrets is how many secrets a cluster has at least: five keys of authorities, three tokens, an encryption secret, and
// the client keys of two sets of credentials. Fewer would mean that the demo does not know where they are.
const minSecrets = 11

// noSecrets looks for the cluster's secrets in every object of every kind in the management cluster, Events included, and
// in the provider's log.
func (d *Demo) noSecrets(ctx context.Context) error {
	if err := d.learnSecrets(ctx); err != nil {
		return err
	}
	objects, kinds, err := d.secret.Scan(ctx, d.lab.Config(), mayHoldSecrets)
	if err != nil {
		return err
	}
	log, err := os.ReadFile(d.lab.ProviderLog())
	if err != nil {
		return fmt.Errorf("cannot read the provider's log: %w", err)
	}
	if secret := d.secret.Find(string(log)); secret != "" {
		return fmt.Errorf("the provider's log has %s", secret)
	}
	d.sayf("        looked for %d texts in %d objects of %d kinds and %d KiB of log\n", len(d.secret), objects, kinds, len(log)/1024)
	return nil
}

func (d *Demo) learnSecrets(ctx context.Context) error {
	if d.secret == nil {
		d.secret = story.Secrets{}
	}
	for _, name := range []string{pkiSecret, connectionSecret} {
		s := &corev1.Secret{}
		if err := d.object(ctx, name, s); err != nil {
			return fmt.Errorf("cannot get Secret %q: %w", name, err)
		}
		if err := d.secret.LearnFrom(s); err != nil {
			return err
		}
	}
	if n := len(d.secret); n < 2*minSecrets {
		return fmt.Errorf("only %d secret texts are known", n)
	}
	return nil
}

func mayHoldSecrets(kind schema.GroupVersionResource, o *unstructured.Unstructured) bool {
	return kind.Group == "" && kind.Resource == "secrets" && o.GetNamespace() == namespace &&
		(o.GetName() == pkiSecret || o.GetName() == connectionSecret)
}
