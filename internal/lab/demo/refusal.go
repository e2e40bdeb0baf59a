package demo

import (
	"context"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

func (d *Demo) deleteNotAllowed(ctx context.Context) error {
	return d.refused(ctx, []string{string(v1alpha1.ReasonNotAllowed), v1alpha1.AnnotationAllowDelete}, "delete", "talosmachine", "cp-2", "--wait=false")
}

func (d *Demo) deleteBelowCount(ctx context.Context) error {
	if err := d.allow(ctx, "talosmachine", "cp-2"); err != nil {
		return err
	}
	words := []string{string(v1alpha1.ReasonBelowDeclaredCount), "Approve a replacement first"}
	return d.refused(ctx, words, "delete", "talosmachine", "cp-2", "--wait=false")
}

func (d *Demo) removeWorker(ctx context.Context) error {
	r, err := d.beginRemoval(ctx, "worker-1")
	if err != nil {
		return err
	}
	if err := d.remove(ctx, "worker-1"); err != nil {
		return err
	}
	return d.ends(ctx, r)
}
