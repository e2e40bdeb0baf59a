package v1alpha1

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestNothingIsAddedToASpec has what a user declares read and written back, as the first finalizer does. A field that the
// provider adds by that is a difference from Git for ever, and a new generation.
func TestNothingIsAddedToASpec(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		into any
	}{
		"TalosMachine": {text: `{"forProvider":{"role":"worker","address":"192.0.2.14","install":{"disk":"/dev/sda"}}}`, into: &TalosMachineSpec{}},
		"TalosCluster": {
			text: `{"forProvider":{"endpoint":"https://192.0.2.10:6443","controlPlane":{"count":3},"versions":{"talos":"v1.13.9","kubernetes":"v1.35.4"}}}`,
			into: &TalosClusterSpec{},
		},
		"ProviderConfig": {text: `{"credentials":{"source":"None"}}`, into: &ProviderConfigSpec{}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := yaml.UnmarshalStrict([]byte(tc.text), tc.into); err != nil {
				t.Fatal(err)
			}
			written, err := json.Marshal(tc.into)
			if err != nil {
				t.Fatal(err)
			}
			var want, got any
			if err := json.Unmarshal([]byte(tc.text), &want); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(written, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("what is written differs from what was declared (-declared +written):\n%s", diff)
			}
		})
	}
}
