package controlplane

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

var (
	crds     = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	webhooks = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
)

const (
	// fieldOwner is who the API server is told has set the fields.
	fieldOwner = "provider-ichor-lab"

	// establishInterval is how often a new CRD is asked whether it is served yet; it takes well under a second.
	establishInterval = 50 * time.Millisecond
)

// InstallCRDs applies every CustomResourceDefinition found in the YAML files under the given files and directories, and
// waits until each is served. It is an error to find none.
func InstallCRDs(ctx context.Context, config *rest.Config, paths ...string) error {
	found, err := readObjects("CustomResourceDefinition", paths)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	for _, crd := range found {
		if err := apply(ctx, client.Resource(crds), crd); err != nil {
			return err
		}
	}
	for _, crd := range found {
		name := crd.GetName()
		err := wait.PollUntilContextCancel(ctx, establishInterval, true, func(ctx context.Context) (bool, error) {
			now, err := client.Resource(crds).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			return isEstablished(now), nil
		})
		if err != nil {
			return fmt.Errorf("cannot wait for CustomResourceDefinition %q to be served: %w", name, err)
		}
	}
	return nil
}

// InstallValidatingWebhooks applies every ValidatingWebhookConfiguration found under the paths, changed so that the API
// server calls base (such as "https://127.0.0.1:9443") instead of a Service, and trusts caBundle (PEM). The path of the
// Service reference is kept. It is an error to find none.
func InstallValidatingWebhooks(ctx context.Context, config *rest.Config, base string, caBundle []byte, paths ...string) error {
	found, err := readObjects("ValidatingWebhookConfiguration", paths)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	for _, configuration := range found {
		if err := pointAt(configuration, base, caBundle); err != nil {
			return fmt.Errorf("cannot redirect ValidatingWebhookConfiguration %q: %w", configuration.GetName(), err)
		}
		if err := apply(ctx, client.Resource(webhooks), configuration); err != nil {
			return err
		}
	}
	return nil
}

// pointAt replaces each webhook's clientConfig. A webhook without a path would be called at the root, where nobody listens.
func pointAt(configuration *unstructured.Unstructured, base string, caBundle []byte) error {
	hooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return err
	}
	for i := range hooks {
		hook, ok := hooks[i].(map[string]any)
		if !ok {
			return fmt.Errorf("webhook %d is not an object", i)
		}
		path, found, err := unstructured.NestedString(hook, "clientConfig", "service", "path")
		if err != nil || !found {
			return errors.Join(fmt.Errorf("webhook %d has no Service path", i), err)
		}
		hook["clientConfig"] = map[string]any{"url": base + path, "caBundle": base64.StdEncoding.EncodeToString(caBundle)}
	}
	return unstructured.SetNestedSlice(configuration.Object, hooks, "webhooks")
}

func apply(ctx context.Context, client dynamic.ResourceInterface, object *unstructured.Unstructured) error {
	_, err := client.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldOwner, Force: true})
	if err != nil {
		return fmt.Errorf("cannot apply %s %q: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

func isEstablished(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if ok && condition["type"] == "Established" && condition["status"] == "True" {
			return true
		}
	}
	return false
}

// readObjects returns the objects of one kind in the YAML files under the paths, in the order of file names.
func readObjects(kind string, paths []string) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	for _, path := range paths {
		err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || (filepath.Ext(file) != ".yaml" && filepath.Ext(file) != ".yml") {
				return err
			}
			objects, err := readFile(file)
			for _, o := range objects {
				if o.GetKind() == kind {
					found = append(found, o)
				}
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("cannot read the objects under %q: %w", path, err)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("cannot find any %s under %q", kind, paths)
	}
	return found, nil
}

func readFile(path string) ([]*unstructured.Unstructured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read from

	const readAhead = 4 << 10
	var found []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(file, readAhead)
	for {
		o := &unstructured.Unstructured{}
		switch err := decoder.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, fmt.Errorf("cannot parse %q: %w", path, err)
		case len(o.Object) > 0: // An empty document lies between two separators.
			found = append(found, o)
		}
	}
}
