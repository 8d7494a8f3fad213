/*
Copyright 2026 The capi-fleet Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package written

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestACacheThatIsBehindOnesOwnWriteIsKnownToBe(t *testing.T) {
	g := NewWithT(t)
	at := func(version string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", ResourceVersion: version}}
	}
	var v Versions
	g.Expect(v.NewerThan(at("7"))).To(BeFalse(), "nothing was written")
	v.Note(at("10"))
	g.Expect(v.NewerThan(at("9"))).To(BeTrue(), "9 is older than 10, as numbers")
	g.Expect(v.NewerThan(at("9"))).To(BeTrue())
	g.Expect(v.NewerThan(at("10"))).To(BeFalse())
	v.Note(at("10"))
	g.Expect(v.NewerThan(at("11"))).To(BeFalse())
	v.Note(at("10"))
	v.Forget(client.ObjectKeyFromObject(at("10")))
	g.Expect(v.NewerThan(at("9"))).To(BeFalse())
}
