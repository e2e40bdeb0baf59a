package v1alpha1

// Annotations, labels and finalizers that people and the provider put on objects.
const (
	// AnnotationAllowDelete must be "true" on a TalosMachine or TalosCluster before a delete of it is admitted. It
	// says that a person meant the delete (a GitOps prune does not); it never overrides the quorum guards.
	AnnotationAllowDelete = Group + "/allow-delete"

	// AnnotationAcceptUnwipedDisk on a TalosMachine holds the SMBIOS UUID of that machine when a person accepts in
	// writing that its disk was not wiped, so that its object may go although its reset could not be verified.
	AnnotationAcceptUnwipedDisk = Group + "/accept-unwiped-disk"

	// AnnotationHoldPrefix begins every hold on a removal: `hold.ichor.maesh.dev/<who>: <why>` on a TalosMachine stops
	// its removal after the drain and before anything irreversible, until its owner takes the annotation off.
	AnnotationHoldPrefix = "hold." + Group + "/"

	// AnnotationRemovalRecord on a TalosMachine is the provider's own note of what the world cannot tell any more once
	// a removal has begun: the machine's UUID, boot ID and etcd member ID. It is an annotation and not status because
	// status is lost when a management cluster is restored from a backup.
	AnnotationRemovalRecord = Group + "/removal-record"

	// AnnotationCordonedBy on a workload Node holds the UID of the object for which the provider cordoned it, so that
	// only cordons of our own are ever undone.
	AnnotationCordonedBy = Group + "/cordoned-by"

	// AnnotationInputsDigest on the PKI Secret holds the SHA-256 of the imported secrets bundle it was made from.
	AnnotationInputsDigest = Group + "/imported-digest"

	// AnnotationClusterUID on the PKI Secret holds the UID of the TalosCluster that it was made for.
	AnnotationClusterUID = Group + "/cluster-uid"

	// AnnotationBootstrapped on a TalosCluster holds the UUID of the one machine that Bootstrap was sent to. It is
	// written before the call and never cleared but by a restore.
	AnnotationBootstrapped = Group + "/bootstrapped-by"

	// AnnotationBootstrapBoot on a TalosCluster holds the boot ID of the boot in which that machine answered Bootstrap. It is
	// written after the answer: Bootstrap is not sent again in that boot, where the second would end what the first began.
	AnnotationBootstrapBoot = Group + "/bootstrap-boot"

	// LabelCluster on Secrets and Leases names the TalosCluster that they belong to.
	LabelCluster = Group + "/cluster"

	// FinalizerMachine is the one finalizer of a TalosMachine. A second one would stop Delete from being called.
	FinalizerMachine = Group + "/machine-removal"

	// FinalizerCluster is the one finalizer of a TalosCluster.
	FinalizerCluster = Group + "/cluster-teardown"

	// FinalizerPKI keeps the Secret with a cluster's PKI until the last machine of that cluster is gone.
	FinalizerPKI = Group + "/pki"
)
