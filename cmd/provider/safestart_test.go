package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/test"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestMayWatchKinds(t *testing.T) {
	cases := map[string]struct {
		reason  string
		answers []bool // one for each question; the last one stays
		err     error
		want    bool
		wantErr bool
	}{
		"Allowed": {
			reason: "Who may watch starts controllers when their kinds appear.", answers: []bool{true}, want: true,
		},
		"GrantedLater": {
			reason:  "Crossplane's RBAC manager may grant rights after the provider has started.",
			answers: []bool{false, true, false, true}, want: true,
		},
		"NeverGranted": {
			reason: "Who never may watch is told so, not kept waiting.", answers: []bool{false}, want: false,
		},
		"NoAnswer": {
			reason: "What the API server does not answer is not known, so nothing is started.", answers: []bool{true},
			err: errors.New("connection refused"), wantErr: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			asked := 0
			c := &test.MockClient{MockCreate: func(_ context.Context, o client.Object, _ ...client.CreateOption) error {
				o.(*authorizationv1.SelfSubjectAccessReview).Status.Allowed = tc.answers[min(asked, len(tc.answers)-1)]
				asked++
				return tc.err
			}}
			got, err := mayWatchKinds(t.Context(), c, 3*time.Second)
			if got != tc.want || (err != nil) != tc.wantErr {
				t.Errorf("\n%s\nmayWatchKinds(...): %t, %v; want %t, error %t", tc.reason, got, err, tc.want, tc.wantErr)
			}
		})
	}
}
