// Package accidents holds what people, GitOps tools and Kubernetes itself do to objects by mistake, told as one story on a
// real API server with real controllers and simulated machines. It must never hold product code: it is tests only.
package accidents
