// Package docs holds the documentation. It has no code of its own: its tests
// keep the pages in step with the code they describe.
package docs
