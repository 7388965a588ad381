{{/*
sluice.refuseInPlace fails where the release that is upgraded is istio-cni's. Helm would delete istio-cni's DaemonSet, whose pods take
istio-cni out of the nodes' chains however they end, and ours come later. Where nothing is known of a cluster, as in helm template, it
has nothing to say.
*/}}
{{- define "sluice.refuseInPlace" -}}
{{- $release := .Release -}}
{{- if and $release.IsUpgrade (eq $release.Name (dig "metadata" "annotations" "meta.helm.sh/release-name" ""
  (lookup "apps/v1" "DaemonSet" $release.Namespace "istio-cni-node"))) -}}
{{- fail (join "\n" (list
  (printf "the release %s is istio-cni's: an upgrade to this chart would delete the DaemonSet %s/istio-cni-node, and istio-cni" $release.Name $release.Namespace)
  "would leave the CNI chains before Sluice is in them: mesh pods that start in between would run without redirection. Install Sluice"
  "beside it, and uninstall it then (the chart's README.md has what Multus needs besides):"
  (printf "  helm install sluice CHART -n %s --wait -f VALUES" $release.Namespace)
  (printf "  helm uninstall %s -n %s" $release.Name $release.Namespace)
)) -}}
{{- end -}}
{{- end -}}
