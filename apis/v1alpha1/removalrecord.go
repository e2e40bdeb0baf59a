package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
)

// A RemovalRecord is the value of AnnotationRemovalRecord, in JSON: what the world cannot tell any more once a removal
// has begun, and that the removal was completed.
type RemovalRecord struct {
	// UUID is the SMBIOS UUID of the machine.
	UUID string `json:"uuid"`
	// BootID of the machine when its removal began. Empty if it could not be read.
	BootID string `json:"bootID,omitempty"`
	// MemberID of the machine's etcd member in hexadecimal, as it was before the removal. Empty for a machine that was
	// no member.
	MemberID string `json:"memberID,omitempty"`
	// Reset is true once a reset was about to be sent.
	Reset bool `json:"reset,omitempty"`
	// Completed is true once nothing is left to do: the machine is no machine of the cluster any more and is never
	// given a configuration again for this object.
	Completed bool `json:"completed,omitempty"`
}

// Member returns the ID of the machine's etcd member; zero for a machine that was no member.
func (r *RemovalRecord) Member() (uint64, error) { return ParseMemberID(r.MemberID) }

// RemovalRecord returns what the removal of this machine wrote down, or nil if no removal has begun. A record that
// cannot be read is an error: it must not be taken for none.
func (m *TalosMachine) RemovalRecord() (*RemovalRecord, error) {
	text, ok := m.GetAnnotations()[AnnotationRemovalRecord]
	if !ok {
		return nil, nil
	}
	r := &RemovalRecord{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("cannot parse annotation %q of TalosMachine %q: %w", AnnotationRemovalRecord, m.GetName(), err)
	}
	if _, err := r.Member(); err != nil {
		return nil, fmt.Errorf("cannot parse annotation %q of TalosMachine %q: %w", AnnotationRemovalRecord, m.GetName(), err)
	}
	return r, nil
}

// SetRemovalRecord writes r into the annotations of this object, in memory only.
func (m *TalosMachine) SetRemovalRecord(r RemovalRecord) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("cannot encode the removal record of TalosMachine %q: %w", m.GetName(), err)
	}
	meta.AddAnnotations(m, map[string]string{AnnotationRemovalRecord: string(text)})
	return nil
}

// PinnedUUID is the SMBIOS UUID that the machine must prove before anything is done to it, in lower case: the declared
// one, else the external name, which is the UUID that was seen when the machine got its first configuration (or that a
// person gave to import it). Empty if the machine was never given a configuration and none was declared.
func (m *TalosMachine) PinnedUUID() string {
	if m.Spec.ForProvider.UUID != "" {
		return strings.ToLower(m.Spec.ForProvider.UUID)
	}
	return strings.ToLower(meta.GetExternalName(m))
}

// FormatMemberID writes the ID of an etcd member as etcdctl does: in hexadecimal. No member (zero) is empty.
func FormatMemberID(id uint64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatUint(id, 16)
}

// ParseMemberID reads what FormatMemberID wrote.
func ParseMemberID(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot parse etcd member ID %q: %w", text, err)
	}
	return id, nil
}
