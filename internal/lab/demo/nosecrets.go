package demo

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
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
	objects, kinds, err := d.scanObjects(ctx)
	if err != nil {
		return err
	}
	log, err := os.ReadFile(d.lab.ProviderLog())
	if err != nil {
		return fmt.Errorf("cannot read the provider's log: %w", err)
	}
	if secret := d.secret.find(string(log)); secret != "" {
		return fmt.Errorf("the provider's log has %s", secret)
	}
	d.sayf("        looked for %d texts in %d objects of %d kinds and %d KiB of log\n", len(d.secret), objects, kinds, len(log)/1024)
	return nil
}

func (d *Demo) learnSecrets(ctx context.Context) error {
	if d.secret == nil {
		d.secret = secretTexts{}
	}
	for _, name := range []string{pkiSecret, connectionSecret} {
		s := &corev1.Secret{}
		if err := d.object(ctx, name, s); err != nil {
			return fmt.Errorf("cannot get Secret %q: %w", name, err)
		}
		for _, key := range []string{"secrets.yaml", "kubeconfig", "talosconfig"} {
			if err := d.secret.learn(name+"/"+key, s.Data[key]); err != nil {
				return err
			}
		}
	}
	if n := len(d.secret); n < 2*minSecrets {
		return fmt.Errorf("only %d secret texts are known", n)
	}
	return nil
}

func (d *Demo) scanObjects(ctx context.Context) (objects, kinds int, err error) {
	config := d.lab.Config()
	config.WarningHandler = rest.NoWarnings{} // Every kind is listed, the deprecated ones as well.
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return 0, 0, fmt.Errorf("cannot make a client: %w", err)
	}
	all, err := dynamic.NewForConfig(config)
	if err != nil {
		return 0, 0, fmt.Errorf("cannot make a client: %w", err)
	}
	lists, err := disco.ServerPreferredResources()
	if err != nil {
		return 0, 0, fmt.Errorf("cannot list the kinds of the management cluster: %w", err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return 0, 0, err
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			n, err := d.scanKind(ctx, all, gv.WithResource(r.Name))
			if err != nil {
				return 0, 0, err
			}
			objects, kinds = objects+n, kinds+1
		}
	}
	return objects, kinds, nil
}

func (d *Demo) scanKind(ctx context.Context, all dynamic.Interface, kind schema.GroupVersionResource) (int, error) {
	list, err := all.Resource(kind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("cannot list %s: %w", kind.GroupResource(), err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		if mayHoldSecrets(kind, o) {
			continue
		}
		if path, secret := d.secret.findIn(o.Object); secret != "" {
			return 0, fmt.Errorf("%s %s/%s has %s at %s", kind.GroupResource(), o.GetNamespace(), o.GetName(), secret, strings.TrimSuffix(path, "."))
		}
	}
	return len(list.Items), nil
}

func mayHoldSecrets(kind schema.GroupVersionResource, o *unstructured.Unstructured) bool {
	return kind.Group == "" && kind.Resource == "secrets" && o.GetNamespace() == namespace &&
		(o.GetName() == pkiSecret || o.GetName() == connectionSecret)
}
