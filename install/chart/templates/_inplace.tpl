{{/*
sluice.refuseInPlace fails if the release to upgrade is istio-cni's. Helm would delete istio-cni's DaemonSet, whose pods remove istio-cni
from the nodes' chains, before Sluice's pods run. Without access to a cluster, as in helm template, this cannot be detected.
*/}}
{{- define "sluice.refuseInPlace" -}}
{{- $release := .Release -}}
{{- if and $release.IsUpgrade (eq $release.Name (dig "metadata" "annotations" "meta.helm.sh/release-name" ""
  (lookup "apps/v1" "DaemonSet" $release.Namespace "istio-cni-node"))) -}}
{{- fail (join "\n" (list
  (printf "the release %s is istio-cni's: an upgrade to this chart would delete the DaemonSet %s/istio-cni-node, and istio-cni" $release.Name $release.Namespace)
  "would leave the CNI chains before Sluice is in them: mesh pods that start in between would run without redirection. Install Sluice"
  "as a second release, and then uninstall istio-cni (see README.md of the chart for Multus):"
  (printf "  helm install sluice CHART -n %s --wait -f VALUES" $release.Namespace)
  (printf "  helm uninstall %s -n %s" $release.Name $release.Namespace)
)) -}}
{{- end -}}
{{- end -}}
