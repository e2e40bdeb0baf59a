package topology

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/xcrd"
	xpv1 "github.com/crossplane/crossplane/apis/v2/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"
)

// TestXRDsAreAccepted makes of each XRD the CRDs that Crossplane makes of it, and holds them against what an API server asks
// of a CRD: above all that the rules are not too costly for lists as long as they may be.
func TestXRDsAreAccepted(t *testing.T) {
	for _, kind := range []string{"talostopology", "xtalostopology"} {
		raw, err := os.ReadFile(filepath.Join(root, "package", "configuration", kind, "definition.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		xrd := &xpv1.CompositeResourceDefinition{}
		if err := yaml.UnmarshalStrict(raw, xrd); err != nil {
			t.Fatal(err)
		}
		crd, err := xcrd.ForCompositeResource(xrd)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		accept(t, crd)
		if xrd.Spec.ClaimNames == nil {
			continue
		}
		if crd, err = xcrd.ForCompositeResourceClaim(xrd); err != nil {
			t.Fatalf("the claim of %s: %v", kind, err)
		}
		accept(t, crd)
	}
}

func accept(t *testing.T, crd *extv1.CustomResourceDefinition) {
	t.Helper()
	crd.SetOwnerReferences(nil) // The XRD has no UID here.
	extv1.SetDefaults_CustomResourceDefinition(crd)
	extv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := extv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
		t.Fatal(err)
	}
	internal.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
	for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
		t.Errorf("%s: %v", crd.GetName(), err)
	}
}
